"""Cooldowns as they are written, to the rules of each endpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import structs

from gateway.config.cooldown_schema import AllowedFailsPolicy
from gateway.config.drafts import RouteDraft, Surroundings
from gateway.config.models_schema import ModelEntry, RouteEntry
from gateway.config.problems import Problems
from gateway.core.cooldown import Cooldown
from gateway.core.outcome import ErrorClass

_COUNTS = ("allowed_fails", "allowed_fails_policy")


def cooldown_policy(
    model: ModelEntry, path: str, routes: Sequence[RouteDraft], problems: Problems
) -> str:
    """Say which policy a model's endpoints follow: `litellm` where one of its keys is used."""
    written = [(path, model), *((one.path, one.entry) for one in routes if one.entry is not None)]
    if model.cooldown_policy == "hybrid":
        for at, entry in written:
            for key in _COUNTS:
                if getattr(entry, key) is not None:
                    problems.error(
                        f"{at}.{key}",
                        "has no effect under cooldown_policy: hybrid",
                        "remove one of the two",
                    )
    if model.cooldown_policy is not None:
        return model.cooldown_policy
    keys = ("cooldown_time", *_COUNTS)
    is_used = any(getattr(entry, key) is not None for _, entry in written for key in keys)
    return "litellm" if is_used else "hybrid"


def cooldown_rules(
    policy: str, route: RouteEntry, model: ModelEntry, around: Surroundings
) -> Cooldown:
    """Put together the rules of a route; what is nearest to it counts."""
    times = (route.cooldown_time, model.cooldown_time, around.cooldown_time)
    return Cooldown(
        policy=policy,
        time_ms=next((math.ceil(time * 1000) for time in times if time is not None), None),
        max_ms=math.ceil(around.max_cooldown * 1000),
        allowed_fails=(model.allowed_fails if route.allowed_fails is None else route.allowed_fails),
        allowed_fails_by_class={
            **_by_class(model.allowed_fails_policy),
            **_by_class(route.allowed_fails_policy),
        },
    )


def _by_class(policy: AllowedFailsPolicy | None) -> dict[ErrorClass, int]:
    given = structs.asdict(policy) if policy else {}
    return {ErrorClass(name): allowed for name, allowed in given.items() if allowed is not None}
