"""Samples: small requests that show how fast endpoints are, where traffic does not.

Of models whose strategy goes by that (`routewise_probe_enabled`). They hold no claims and take
nothing of a quota; how they end is kept among the outcomes, so that it lasts.
"""

from __future__ import annotations

import asyncio
import itertools

from coordinator.calibrate import Calibrator
from coordinator.current import Known
from coordinator.lease import Lease
from coordinator.tally import Tally
from gateway.config.routewise_schema import RoutewiseParams
from gateway.config.routewise_settings import in_force
from gateway.core.route import Model, Route
from gateway.dispatch.sample import sample
from gateway.dispatch.send import Dispatcher
from gateway.errors import StateUnavailable
from gateway.routing.weights import weigh
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.outcomes import Ended
from gateway.state.store import Store

LOOK_S = 0.5
"""How often it is seen which endpoints are due."""


class Sampler:
    """Samples under one epoch after the other, at the pace of the configuration of now."""

    def __init__(
        self,
        store: Store,
        coordinator_store: CoordinatorStore,
        calibrator: Calibrator,
        dispatcher: Dispatcher,
        *,
        known: Known,
        tally: Tally,
        lease: Lease,
    ) -> None:
        self._state = store
        self._store = coordinator_store
        self._calibrator = calibrator
        self._dispatcher = dispatcher
        self._known = known
        self._tally = tally
        self._lease = lease
        self._numbers = itertools.count(1)

    async def run(self, epoch: int) -> None:
        """Look for endpoints that are due, and sample each, until there is another configuration.

        Raises `StateUnavailable` and `Fenced`.
        """
        replaced = self._known.replaced
        due_s: dict[str, float] = {}
        under_way: dict[str, asyncio.Task[None]] = {}
        places = asyncio.Semaphore(self._most_at_a_time())
        async with asyncio.TaskGroup() as samples:
            while not replaced.is_set():
                now_s = asyncio.get_running_loop().time()
                for route, params in await self._routes():
                    last = under_way.get(route.endpoint)
                    if last and not last.done():  # else those in want of a place pile up
                        continue
                    if now_s >= due_s.get(route.endpoint, 0.0) and self._is_idle(route, params):
                        due_s[route.endpoint] = now_s + params.routewise_probe_interval_sec
                        work = self._sample(epoch, route, params, places)
                        under_way[route.endpoint] = samples.create_task(work)
                await asyncio.sleep(LOOK_S)
            for task in under_way.values():
                task.cancel()

    async def _routes(self) -> list[tuple[Route, RoutewiseParams]]:
        """Those of models that are to be sampled by now. Raises `StateUnavailable`."""
        found = []
        for model in self._models():
            overrides = await self._state.overrides(model.id)
            params = in_force(model, overrides)
            if params.routewise_probe_enabled:
                routes = [one.route for one in weigh(model, overrides) if one.weight > 0]
                found += [(one, params) for one in routes if not one.starts_when_used]
        return found

    def _models(self) -> list[Model]:
        models = self._known.config.models.values()
        return [model for model in models if isinstance(model.router_params, RoutewiseParams)]

    def _most_at_a_time(self) -> int:
        """The least that any of the models allows: their endpoints may be of one account."""
        every = [model.router_params for model in self._models()]
        return min(
            (
                params.routewise_probe_max_concurrency
                for params in every
                if isinstance(params, RoutewiseParams)
            ),
            default=1,
        )

    def _is_idle(self, route: Route, params: RoutewiseParams) -> bool:
        """Whether an endpoint may be sampled for want of traffic, as far as is known by now."""
        learner = self._calibrator.learners.get(route.model_id)
        if learner is None:
            return False
        threshold_ms = params.routewise_probe_idle_threshold_sec * 1000
        idle_ms = learner.idle_ms(route.location, self._known.now_ms())
        return not params.routewise_probe_idle_only or idle_ms >= threshold_ms

    async def _sample(
        self, epoch: int, route: Route, params: RoutewiseParams, places: asyncio.Semaphore
    ) -> None:
        try:
            async with places:
                if not self._lease.is_held:
                    return
                found = await sample(
                    self._dispatcher,
                    route,
                    timeout_s=params.routewise_probe_timeout_sec,
                    request_id=f"req_{self._lease.holder}.{next(self._numbers)}",
                )
        except StateUnavailable:
            return  # nobody says which key serves
        ended = Ended(
            location=route.location,
            is_ok=found.error is None,
            ttft_ms=found.ttft_ms,
            is_probe=True,
        )
        self._tally.add("sampled")
        try:
            await self._store.note_probe(
                epoch, route.model_id, ended, keep=params.db_bootstrap_max_rows
            )
        except StateUnavailable:
            return  # when Redis is back it is old news
