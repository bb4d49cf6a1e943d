"""The profiles of models as this replica last read them.

Read off the way of requests, once a second, of the models whose strategy goes by them. One that
is old stays in use: it is still the best that is known.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from gateway.core.profile import NO_PROFILE, Profile
from gateway.core.route import Model
from gateway.errors import StateUnavailable
from gateway.routing.strategies import strategy_of
from gateway.state.profiles import PublishedProfile
from gateway.state.store import Store
from gateway.telemetry.logs import bug, event

EVERY_S = 1.0
OLD_MS = 60_000
"""An older one is a sign that nobody calibrates any more; so is none for so long."""


class KnownProfiles:
    """By model."""

    def __init__(self, store: Store, models: Callable[[], Iterable[Model]]) -> None:
        self._store = store
        self._models = models
        self._known: dict[str, tuple[PublishedProfile, float]] = {}
        self._old: set[str] = set()
        self._since_s = time.monotonic()

    def of(self, model: Model) -> Profile:
        """What is known of a model, without asking."""
        known = self._known.get(model.id)
        return known[0].profile if known else NO_PROFILE

    def age_ms(self, model: Model) -> int | None:
        """How old what is known of a model is; `None` for nothing."""
        if model.id not in self._known:
            return None
        found, read_s = self._known[model.id]
        return found.age_ms + round((time.monotonic() - read_s) * 1000)

    async def run(self) -> None:
        """Read again and again, until cancelled."""
        while True:
            try:
                await self.read()
            except StateUnavailable:
                pass  # what is known stays
            except Exception:  # whatever it is, what is known must not grow old
                bug(loop="profiles")
            await asyncio.sleep(EVERY_S)

    async def read(self) -> None:
        """Read all. Raises `StateUnavailable`."""
        for model in self._calibrated():
            found = await self._store.profile(model.id)
            if found is not None:
                self._known[model.id] = found, time.monotonic()
            self._tell(model)

    def _calibrated(self) -> list[Model]:
        return [model for model in self._models() if strategy_of(model).IS_CALIBRATED]

    def _tell(self, model: Model) -> None:
        """Log once when a profile is missing or old, and once when it is not any more."""
        age_ms = self.age_ms(model)
        missing_ms = (time.monotonic() - self._since_s) * 1000
        is_old = (missing_ms if age_ms is None else age_ms) > OLD_MS
        if is_old and model.id not in self._old:
            event("profile_old", level=logging.WARNING, model=model.id, age_ms=age_ms)
        elif not is_old and model.id in self._old:
            event("profile_fresh", model=model.id, age_ms=age_ms)
        (self._old.add if is_old else self._old.discard)(model.id)
