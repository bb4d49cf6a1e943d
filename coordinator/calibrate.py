"""Calibration: what models' strategies go by is learned from how attempts end, once in a cluster.

Replicas append outcomes to a stream of each such model (`settle`). The leader reads the stream as
the one member of its group, publishes what it has learned as the model's profile, and only then
takes what it has read for read: it is read at least once, and counts once. One that begins reads
the stored outcomes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from msgspec import structs

from coordinator.current import Known
from coordinator.learning import Learner, Mean
from coordinator.tally import Tally
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.profile import Profile
from gateway.core.route import Model
from gateway.core.supply import QuotaState
from gateway.errors import StateUnavailable
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.outcomes import read_ended
from gateway.state.supply_store import SupplyStore

EVERY_S = 1.0
AT_LEAST_EVERY_S = 10.0
"""How soon a profile is published again although nothing has happened: windows go on."""
_PAGE = 1000
"""Outcomes that are read at once."""


class Calibrator:
    """Calibrates under one epoch after the other."""

    def __init__(
        self,
        coordinator_store: CoordinatorStore,
        supplies: SupplyStore,
        known: Known,
        tally: Tally,
        *,
        reader: str,
    ) -> None:
        self._store = coordinator_store
        self._supplies = supplies
        self._known = known
        self._tally = tally
        self._reader = reader
        self.learners: dict[str, Learner] = {}
        """By model, while this coordinator leads."""
        self._missed: set[str] = set()
        """Models of which something that was read may have been learned and not been published."""
        self._published_s: dict[str, float] = {}
        self._quotas: dict[str, dict[str, QuotaState]] = {}
        """By model and pool, as published last."""

    async def run(self, epoch: int) -> None:
        """Calibrate by the configuration of now, until there is another.

        Raises `StateUnavailable` and `Fenced`.
        """
        replaced = self._known.replaced
        self.learners, self._missed = {}, set()
        self._published_s.clear()
        self._quotas.clear()
        await self._known.look()
        for learner in self._begin():
            await self._read_stored(epoch, learner)
            self.learners[learner.model.id] = learner
        while self.learners and not replaced.is_set():
            counts = [await self._learn(epoch, one) for one in self.learners.values()]
            if max(counts) < _PAGE:
                await _until(replaced, EVERY_S)
        await replaced.wait()

    def _begin(self) -> Iterable[Learner]:
        now_ms = self._known.now_ms()
        return [
            Learner(model, model.router_params, now_ms)
            for model in self._known.config.models.values()
            if isinstance(model.router_params, RoutewiseParams)
        ]

    async def _read_stored(self, epoch: int, learner: Learner) -> None:
        """Learn from the outcomes that are stored, as far back as any of them counts."""
        params = learner.params
        since_ms = self._known.now_ms()
        if params.db_bootstrap_enabled:
            longest_s = max(
                params.latency_history_prior_window_sec, params.envelope_window_hours * 3600
            )
            since_ms -= round(longest_s * 1000)
        last = str(max(since_ms, 0))
        while True:
            page = await self._store.read_outcomes(
                epoch, learner.model.id, reader=self._reader, start=last, limit=_PAGE
            )
            for id, words in page:
                learner.note(id, read_ended(id, words))
            if len(page) < _PAGE:
                return
            last = page[-1][0]

    async def _learn(self, epoch: int, learner: Learner) -> int:
        """Learn what is new, and publish it. When Redis is away it is read again next time.

        Returns how many outcomes were read.
        """
        model_id, now_s = learner.model.id, asyncio.get_running_loop().time()
        was_missed = model_id in self._missed
        self._missed.add(model_id)
        try:
            if was_missed:
                read = await self._read(epoch, learner, "pending")
                is_all = len(read) < _PAGE
            else:
                read, is_all = await self._read(epoch, learner, "next"), True
            quotas = await self._states(learner.model)
            is_news = bool(read) or quotas != self._quotas.get(model_id)
            if is_news or now_s - self._published_s.get(model_id, 0.0) >= AT_LEAST_EVERY_S:
                profile = structs.replace(self._profile(learner), quotas=quotas)
                await self._store.publish_profile(epoch, model_id, profile, read=read)
                self._published_s[model_id] = now_s
                self._quotas[model_id] = quotas
        except StateUnavailable:
            return 0
        if is_all:
            self._missed.discard(model_id)
        return len(read)

    async def _read(self, epoch: int, learner: Learner, start: str) -> list[str]:
        """Learn from the next outcomes, or from those that may have been missed: one page."""
        page = await self._store.read_outcomes(
            epoch, learner.model.id, reader=self._reader, start=start, limit=_PAGE
        )
        for id, words in page:
            self._tally.add("learned", learner.note(id, read_ended(id, words)))
        return [id for id, _ in page]

    async def _states(self, model: Model) -> dict[str, QuotaState]:
        """How the quotas of a model stand, those that somebody has reported."""
        supplies = [route.supply for route in model.routes if route.supply]
        pools = {supply.pool for supply in supplies if supply.kind == "quota"}
        found = {pool: (await self._supplies.state(pool))[0] for pool in sorted(pools)}
        return {pool: quota for pool, quota in found.items() if quota is not None}

    def _profile(self, learner: Learner) -> Profile:
        every = self.learners.values()
        output = Mean(
            count=sum(one.output.count for one in every),
            total=sum(one.output.total for one in every),
        )
        names = learner.params.envelope_bootstrap_donor_models or ()
        donors = [self.learners[name] for name in names if name in self.learners]
        return learner.profile(self._known.now_ms(), all_output=output, donors=donors)


async def _until(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for an event, or for so long."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
