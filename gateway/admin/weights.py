"""Run-time weights: what the files say of a route, what holds instead, and how to change it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from gateway.admin.targets import endpoints_of, route_of
from gateway.config.models_schema import LARGEST_WEIGHT, SMALLEST_WEIGHT
from gateway.config.result import Config
from gateway.core.overrides import Overrides
from gateway.core.route import Model, Route
from gateway.errors import InvalidRequest
from gateway.routing.weights import weigh
from gateway.state.store import Store


class WeightChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body that sets a weight."""

    weight: float


class RouteWeight(Struct, frozen=True, kw_only=True):
    """A route and its weights."""

    model_id: str
    strategy: str
    endpoint_id: str
    provider: str
    base_url: str
    yaml_weight: float
    override_weight: float | None
    effective_weight: float
    epoch: int
    """Of the model's overrides."""


class ModelWeights(Struct, frozen=True, kw_only=True):
    """The routes of one model."""

    model_id: str
    routes: Sequence[RouteWeight]


class AllWeights(Struct, frozen=True, kw_only=True):
    """The routes of all models."""

    routes: Sequence[RouteWeight]


class RouteWeights:
    """Reads and changes weights. Each method raises `StateUnavailable`."""

    def __init__(self, config: Config, store: Store) -> None:
        self._config = config
        self._store = store

    async def all(self) -> AllWeights:
        """Of every model, read anew."""
        listed = await asyncio.gather(*map(self.of, self._config.models.values()))
        return AllWeights(routes=[route for one in listed for route in one.routes])

    async def of(self, model: Model) -> ModelWeights:
        """Of one model, read anew."""
        overrides = await self._store.overrides(model.id)
        return ModelWeights(model_id=model.id, routes=_listed(model, overrides))

    async def set(self, model: Model, endpoint: str, weight: float) -> RouteWeight:
        """Have a route drawn by this weight: once this returns, no replica uses the old one.

        Raises `InvalidRequest` for an endpoint or a weight that cannot be, and where no route of
        the model would be left.
        """
        route = _route(model, endpoint)
        if weight and not SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT:
            raise InvalidRequest("The weight must be 0, or from 1e-9 to 1e9.", param="weight")
        return await self._override(model, route, weight or 0.0)  # -0.0 is one, too

    async def drop(self, model: Model, endpoint: str) -> RouteWeight:
        """Let the weight of the files hold again. Raises `InvalidRequest`."""
        return await self._override(model, _route(model, endpoint), None)

    async def _override(self, model: Model, route: Route, weight: float | None) -> RouteWeight:
        reply = await self._store.override_weight(
            model.id, location=route.location, weight=weight, routes=as_configured(model)
        )
        if reply.status == "none_left":
            raise InvalidRequest(f"cannot zero all routes for model '{model.id}'", param="weight")
        listed = _listed(model, await self._store.overrides(model.id))
        return next(one for one in listed if one.endpoint_id == route.endpoint)


def as_configured(model: Model) -> list[tuple[str, str, float]]:
    """A model's routes as the store judges overrides by: location, label, weight."""
    return [(route.location, route.provider, route.weight) for route in model.routes]


def _route(model: Model, endpoint: str) -> Route:
    route = route_of(model, endpoint)
    if route is None:
        raise InvalidRequest(
            f"unknown endpoint for model '{model.id}': '{endpoint}'. {endpoints_of(model)}"
        )
    return route


def _listed(model: Model, overrides: Overrides) -> list[RouteWeight]:
    return [
        RouteWeight(
            model_id=model.id,
            strategy=model.router,
            endpoint_id=one.route.endpoint,
            provider=one.route.provider,
            base_url=one.route.base_url,
            yaml_weight=one.route.configured_weight,
            override_weight=overrides.weights.get(one.route.location),
            effective_weight=one.weight,
            epoch=overrides.epoch,
        )
        for one in weigh(model, overrides)
    ]
