"""Offload policies at run time: what the files say of a model, what holds instead, and what not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from gateway.admin.targets import endpoints_of, route_of
from gateway.config.offload import not_offloadable, offload_of
from gateway.config.offload_schema import LONGEST_WAIT_S, OffloadEntry
from gateway.config.result import Config
from gateway.core.overrides import Overrides, SetOffload
from gateway.core.route import Model
from gateway.errors import InvalidRequest
from gateway.routing.weights import weigh
from gateway.state.offloads import DAY_MS, KEPT_MS, Offloaded, OffloadLog
from gateway.state.store import Store


class OffloadItem(Struct, frozen=True, kw_only=True):
    """The policy of a model."""

    model_id: str
    route_id: str
    """Location of the route that is kept."""
    wait_seconds: float
    engine_queue_limit: int | None = None
    max_input_tokens: int | None = None
    endpoint_id: str | None
    """Of that route; `None` when there is none."""
    active: bool
    inactive_reason: str | None
    """Why it has no effect: `strategy`, `unknown_route`, or what keeps the route out of service."""
    is_override: bool
    """Whether an operator has set it, rather than the files."""
    updated_at: datetime | None = None
    updated_by: str | None = None


class ModelOffload(Struct, frozen=True, kw_only=True):
    """One model, with a policy or without."""

    model_id: str
    offload: OffloadItem | None
    epoch: int
    """Of the model's overrides."""


class AllOffloads(Struct, frozen=True, kw_only=True):
    """The policies of all models that have one."""

    queue_enabled: bool
    """Whether requests wait for their turn at upstream accounts."""
    max_wait_seconds: float
    """The longest wait that a policy may name."""
    offload_routes: Sequence[OffloadItem]


class RecentOffloads(Struct, frozen=True, kw_only=True):
    """Requests that have gone to an offload route, the latest first."""

    offloads: Sequence[Offloaded]


class DaysQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far to look back."""

    days: float = 1.0


class NotOffloadable(InvalidRequest):
    """The model can have no offload route."""

    status = 422
    code = "not_offloadable"


class OffloadRoutes:
    """Reads and changes policies. Each method raises `StateUnavailable`."""

    def __init__(self, config: Config, store: Store, log: OffloadLog) -> None:
        self._config = config
        self._store = store
        self._log = log

    async def all(self) -> AllOffloads:
        """Of every model, read anew."""
        each = await asyncio.gather(*map(self.of, self._config.models.values()))
        return AllOffloads(
            queue_enabled=self._config.settings.upstream_concurrency.enabled,
            max_wait_seconds=LONGEST_WAIT_S,
            offload_routes=[one.offload for one in each if one.offload],
        )

    async def of(self, model: Model) -> ModelOffload:
        """Of one model, read anew."""
        overrides = await self._store.overrides(model.id)
        return ModelOffload(
            model_id=model.id, offload=_item(model, overrides), epoch=overrides.epoch
        )

    async def set(self, model: Model, asked: OffloadEntry, *, by: str) -> ModelOffload:
        """Have another policy hold. Raises `InvalidRequest` and `NotOffloadable`."""
        if wrong := not_offloadable(model.router, model.router_params):
            raise NotOffloadable(f"Model '{model.id}': {wrong[0]}.")
        if len(model.routes) < 2:
            raise NotOffloadable(f"Model '{model.id}' has but one route: what would it relieve?")
        route = route_of(model, asked.route_id)
        if route is None:
            raise InvalidRequest(
                f"Model '{model.id}' has no route '{asked.route_id}'. {endpoints_of(model)}",
                param="route_id",
            )
        policy = offload_of(
            OffloadEntry(
                route_id=route.location,
                wait_seconds=asked.wait_seconds,
                engine_queue_limit=asked.engine_queue_limit,
                max_input_tokens=asked.max_input_tokens,
            )
        )
        at_ms = int(time.time() * 1000)
        offload = SetOffload(policy=policy, at_ms=at_ms, by=by)
        await self._store.override_offload(model.id, offload=offload)
        return await self.of(model)

    async def drop(self, model_id: str) -> ModelOffload:
        """Let the files' policy hold again, if there is one; also of a model that is gone."""
        await self._store.override_offload(model_id, offload=None)
        if model := self._config.models.get(model_id):
            return await self.of(model)
        overrides = await self._store.overrides(model_id)
        return ModelOffload(model_id=model_id, offload=None, epoch=overrides.epoch)

    async def recent(self, query: DaysQuery) -> RecentOffloads:
        """The last requests that were offloaded. Raises `InvalidRequest`."""
        within_ms = query.days * DAY_MS
        if not 0 < within_ms <= KEPT_MS:
            raise InvalidRequest(f"days must be more than 0, at most {KEPT_MS // DAY_MS}.")
        return RecentOffloads(offloads=await self._log.last(within_ms=int(within_ms)))


def _item(model: Model, overrides: Overrides) -> OffloadItem | None:
    changed = overrides.offload
    policy = changed.policy if changed else model.offload
    if policy is None:
        return None
    inactive = _inactive_reason(model, overrides, policy.location)
    route = route_of(model, policy.location)
    return OffloadItem(
        model_id=model.id,
        route_id=policy.location,
        wait_seconds=policy.wait_s,
        engine_queue_limit=policy.engine_queue_limit,
        max_input_tokens=policy.max_input_tokens,
        endpoint_id=route.endpoint if route else None,
        active=inactive is None,
        inactive_reason=inactive,
        is_override=changed is not None,
        updated_at=datetime.fromtimestamp(changed.at_ms / 1000, UTC) if changed else None,
        updated_by=changed.by if changed else None,
    )


def _inactive_reason(model: Model, overrides: Overrides, location: str) -> str | None:
    if not_offloadable(model.router, model.router_params):
        return "strategy"
    for one in weigh(model, overrides):
        if one.route.location == location:
            return None if one.weight > 0 else str(one.reasons[0])
    return "unknown_route"
