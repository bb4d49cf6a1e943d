"""The weights that are drawn by while an operator's overrides hold, and why some of them are 0.

An override takes the place of the weight that the files give, split included; a disabled provider
label makes it 0. Reasons name what has been done to a route itself: siblings whose share a change
raises or lowers are not in them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.core.overrides import Overrides
from gateway.core.reasons import Exclusion
from gateway.core.route import WEIGHT_TOLERANCE, Model, Route


class Weighed(Struct, frozen=True):
    """A route with the weight in force and what has been done to it."""

    route: Route
    weight: float
    reasons: tuple[Exclusion, ...] = ()
    """Of a weight of 0: all that keep it there. Of any other: what changed it."""


class RouteShare(Struct, frozen=True, kw_only=True):
    """What a route gets of its model's draws. Both weights are shares of the model's total."""

    model_id: str
    endpoint_id: str
    provider: str
    base_url: str
    configured_weight: float
    effective_weight: float
    reasons: tuple[Exclusion, ...]


class Notice(Struct, frozen=True, kw_only=True):
    """A line for the log, as `telemetry.logs.event` takes it."""

    name: str
    level: int
    fields: Mapping[str, Any]


class Weights:
    """Weighs the routes of each model once, and again when the overrides have changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Model, Overrides, tuple[Weighed, ...]]] = {}

    def of(self, model: Model, overrides: Overrides) -> tuple[Weighed, ...]:
        """The routes of a model in declaration order."""
        known = self._known.get(model.id)
        if known and known[0] is model and known[1] == overrides:
            return known[2]
        weighed = weigh(model, overrides)
        self._known[model.id] = (model, overrides, weighed)
        return weighed


class Divergences:
    """Tells how weights differ from the configuration, once per set of differences and model."""

    def __init__(self) -> None:
        self._told: dict[str, list[RouteShare]] = {}

    def notices(self, model: Model, overrides: Overrides) -> list[Notice]:
        """What to log, now that these overrides hold: nothing when it has been told before.

        A route that models.yaml itself keeps out is no difference.
        """
        differing = [
            share
            for share in shares(model, overrides)
            if set(share.reasons) - {Exclusion.CONFIGURED_ZERO}
        ]
        told = self._told.get(model.id, [])
        self._told[model.id] = differing
        if differing == told:
            return []
        if not differing:
            fields = {"model": model.id}
            return [
                Notice(name="route_weight_divergence_cleared", level=logging.INFO, fields=fields)
            ]
        return [_notice(share) for share in differing]


def weigh(model: Model, overrides: Overrides) -> tuple[Weighed, ...]:
    """Give each route the weight in force, in declaration order."""
    return tuple(_weigh(route, overrides) for route in model.routes)


def shares(model: Model, overrides: Overrides) -> list[RouteShare]:
    """Compare each route's configured share with the one in force."""
    weighed = weigh(model, overrides)
    configured = _parts([one.route.configured_weight for one in weighed])
    effective = _parts([one.weight for one in weighed])
    return [
        RouteShare(
            model_id=model.id,
            endpoint_id=one.route.endpoint,
            provider=one.route.provider,
            base_url=one.route.base_url,
            configured_weight=before,
            effective_weight=now,
            reasons=one.reasons,
        )
        for one, before, now in zip(weighed, configured, effective, strict=True)
    ]


def exclusions(model: Model, overrides: Overrides) -> list[RouteShare]:
    """The routes that no draw and no failover can reach."""
    return [one for one in shares(model, overrides) if one.effective_weight == 0]


def _weigh(route: Route, overrides: Overrides) -> Weighed:
    weight = overrides.weights.get(route.location, route.weight)
    reasons: tuple[Exclusion, ...] = ()
    if not math.isclose(weight, route.weight, rel_tol=WEIGHT_TOLERANCE):
        reasons = (Exclusion.WEIGHT_OVERRIDE,)
    elif route.configured_weight == 0:
        reasons = (Exclusion.CONFIGURED_ZERO,)
    elif route.is_split:
        reasons = (Exclusion.ROUTING_YAML,)
    if route.provider not in overrides.disabled:
        return Weighed(route, weight, reasons)
    # What had left it some weight does not keep it out now.
    zeroed = () if weight else reasons
    return Weighed(route, 0.0, (*zeroed, Exclusion.PROVIDER_DISABLED))


def _parts(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [weight / total if total else 0.0 for weight in weights]


def _notice(share: RouteShare) -> Notice:
    is_zero = share.effective_weight == 0
    return Notice(
        name="route_weight_zeroed" if is_zero else "route_weight_overridden",
        level=logging.WARNING if is_zero else logging.INFO,
        fields={
            "model": share.model_id,
            "endpoint": share.endpoint_id,
            "provider": share.provider,
            "configured_weight": share.configured_weight,
            "effective_weight": share.effective_weight,
            "reasons": [str(reason) for reason in share.reasons],
        },
    )
