"""Keeps, off the client's path, that requests have gone to an offload route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.state.offloads import Offloaded, OffloadLog
from gateway.telemetry.access import RequestRecord


class Offloads:
    """Notes them when they have ended."""

    def __init__(
        self, log: OffloadLog, deliver: Callable[[Callable[[], Awaitable[object]]], None]
    ) -> None:
        """`deliver` makes a call in the background until the store has answered it."""
        self._log = log
        self._deliver = deliver

    def note(self, record: RequestRecord) -> None:
        """Keep what the record tells, if it is of such a request."""
        if record.offload:
            offloaded = Offloaded.of(record)
            self._deliver(lambda: self._log.note(offloaded))
