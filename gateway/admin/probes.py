"""Samples that operators ask for, beside those that the coordinator takes; and the last of each."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from msgspec import Struct

from gateway.api.request import FreshIds
from gateway.config.result import Config
from gateway.config.routewise_settings import in_force
from gateway.core.profile import NO_PROFILE
from gateway.core.route import Model
from gateway.dispatch.sample import sample
from gateway.dispatch.send import Dispatcher
from gateway.routing.strategies import strategy_of
from gateway.state.coordinator_store import CoordinatorStore, Fenced
from gateway.state.outcomes import Ended
from gateway.state.store import Store


class WhichProbes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which endpoints are to be sampled; all, unless told."""

    model_id: str | None = None
    """An id or an alias."""
    endpoint_id: str | None = None
    idle_only: bool = False
    """Whether only those of which nothing recent is known."""


class ProbeRun(Struct, frozen=True, kw_only=True):
    """How a sample has ended."""

    model_id: str
    endpoint_id: str
    ok: bool
    ttft_ms: int | None
    error: str | None


class ProbesRun(Struct, frozen=True, kw_only=True):
    """How all have."""

    results: Sequence[ProbeRun]


class LastProbe(Struct, frozen=True, kw_only=True):
    """The last sample of an endpoint that the coordinator has learned from."""

    model_id: str
    endpoint_id: str
    at_ms: int
    """By the clock of Redis."""
    ok: bool
    ttft_ms: int | None


class AllProbes(Struct, frozen=True, kw_only=True):
    """Those of all endpoints that have had one."""

    probes: Sequence[LastProbe]


class Probes:
    """Takes samples from this replica, one after the other."""

    def __init__(
        self,
        config: Config,
        store: Store,
        coordinator_store: CoordinatorStore,
        dispatcher: Dispatcher,
    ) -> None:
        self._config = config
        self._store = store
        self._coordinator_store = coordinator_store
        self._dispatcher = dispatcher
        self._fresh_id = FreshIds()

    async def last(self) -> list[LastProbe]:
        """The last of each endpoint. Raises `StateUnavailable`."""
        found = []
        for model in self._models():
            published = await self._store.profile(model.id)
            for location, probed in sorted(published.profile.probes.items() if published else ()):
                found.append(
                    LastProbe(
                        model_id=model.id,
                        endpoint_id=f"{model.id}:{location}",
                        at_ms=probed.at_ms,
                        ok=probed.is_ok,
                        ttft_ms=probed.ttft_ms or None,
                    )
                )
        return found

    async def run(self, wanted: WhichProbes) -> list[ProbeRun]:
        """Take samples, and keep how they end for the coordinator to learn from.

        Raises `StateUnavailable`.
        """
        name = wanted.model_id
        model_id = None if name is None else self._config.names[name]
        results = []
        for model in self._models():
            if model_id in (None, model.id):
                results += await self._run(model, wanted)
        return results

    async def _run(self, model: Model, wanted: WhichProbes) -> list[ProbeRun]:
        params = in_force(model, await self._store.overrides(model.id))
        published = await self._store.profile(model.id)
        speeds = (published.profile if published else NO_PROFILE).speeds
        epoch = (await self._store.coordinator()).epoch
        results = []
        for route in sorted(model.routes, key=lambda one: one.endpoint):
            speed = speeds.get(route.location)
            is_busy = speed is not None and speed.source == "profile"
            is_meant = wanted.endpoint_id in (None, route.endpoint)
            if not is_meant or route.weight == 0 or (wanted.idle_only and is_busy):
                continue
            found = await sample(
                self._dispatcher,
                route,
                timeout_s=params.routewise_probe_timeout_sec,
                request_id=self._fresh_id(),
            )
            is_ok = found.error is None
            ended = Ended(
                location=route.location, is_ok=is_ok, ttft_ms=found.ttft_ms, is_probe=True
            )
            keep = params.db_bootstrap_max_rows
            with contextlib.suppress(Fenced):  # a new coordinator has come just now
                await self._coordinator_store.note_probe(epoch, model.id, ended, keep=keep)
            results.append(
                ProbeRun(
                    model_id=model.id,
                    endpoint_id=route.endpoint,
                    ok=is_ok,
                    ttft_ms=found.ttft_ms or None,
                    error=found.error,
                )
            )
        return results

    def _models(self) -> list[Model]:
        models = self._config.models.values()
        return [model for model in models if strategy_of(model).IS_CALIBRATED]
