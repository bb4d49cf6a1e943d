"""The run-time overrides that this replica knows of. `admit` says when they are out of date."""

from __future__ import annotations

from gateway.core.overrides import Overrides
from gateway.core.route import Model
from gateway.routing.weights import Divergences
from gateway.state.store import Store
from gateway.telemetry.logs import event

NONE = Overrides()


class KnownOverrides:
    """By model, as last read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Overrides] = {}
        self._divergences = Divergences()

    def of(self, model: Model) -> Overrides:
        """What is known, without asking; before the first reading, that there are none."""
        return self._known.get(model.id, NONE)

    async def read(self, model: Model) -> Overrides:
        """Read them anew, and log how weights now differ from the configuration.

        Raises `StateUnavailable`.
        """
        overrides = self._known[model.id] = await self._store.overrides(model.id)
        for notice in self._divergences.notices(model, overrides):
            event(notice.name, level=notice.level, **notice.fields)
        return overrides
