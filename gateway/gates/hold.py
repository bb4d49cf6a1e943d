"""The engine hold: at most so many streams that one engine has not begun to answer yet.

Everybody else waits here, in one line per engine, where giving up costs the engine nothing. The
limit is a model's; of several models on one engine the last to arrive has the say. The hold only
decides where a request waits and never fails it: without a deadline it goes on over the limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from gateway.config.location import is_local
from gateway.core.gate import Gate
from gateway.core.route import Route
from gateway.gates.place import Place, UpstreamQueueWaitExpired
from gateway.gates.waiting import Waiting, nobody
from gateway.telemetry.logs import event

_PORTS = {"http": 80, "https": 443}


class EngineHold:
    """Lines in front of this host's engines."""

    def __init__(self, waiting: Waiting, *, acquire_timeout_s: float, host_id: str = "") -> None:
        """`host_id` tells this host's engines from others' where hosts share a Redis."""
        self._waiting = waiting
        self._acquire_timeout_s = acquire_timeout_s
        self._host_id = host_id

    async def enter(
        self,
        route: Route,
        limit: int,
        *,
        is_stream: bool,
        deadline_s: float | None = None,
        queued: Callable[[], None] = nobody,
    ) -> Place | None:
        """Wait until the engine has fewer than `limit` streams without output; `None` if exempt.

        With a deadline on the loop's clock until then, and where it has passed only what is free is
        taken: raises `UpstreamQueueWaitExpired`. Without one as long as the limiter would wait,
        then over the limit. `queued` is told that it has to. Raises `StateUnavailable`.
        """
        if not is_stream or not is_local(route.base_url):
            return None
        gate = self.gate(route, limit)
        if deadline_s is None:
            wait_s, is_bound = self._acquire_timeout_s, False
        else:
            wait_s = max(deadline_s - asyncio.get_running_loop().time(), 0.0)
            is_bound = True
        place = await self._waiting.enter(gate, wait_s, overflows=not is_bound, queued=queued)
        if place is None:
            raise UpstreamQueueWaitExpired(gate)
        if place.is_over:
            event("engine_hold_overflowed", level=logging.WARNING, **gate.about)
        return place

    def leave(self, place: Place | None) -> None:
        """Give a place back at the first output, or when the attempt ends; the first one counts."""
        if place is not None:
            self._waiting.leave(place)

    def gate(self, route: Route, limit: int) -> Gate:
        """The gate in front of a route's engine, whose limit is this from now on."""
        return engine_gate(route, limit, self._host_id)


def engine_gate(route: Route, limit: int, host_id: str = "") -> Gate:
    """The gate in front of a route's engine, whose limit is this from now on."""
    address = engine_address(route.base_url, host_id)
    return Gate(tag=f"e:{address}", limit=limit, about={"engine": address})


def engine_address(base_url: str, host_id: str = "") -> str:
    """What an engine is known by: `host:port`, and `@host_id` where that is given."""
    parts = urlsplit(base_url)
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or _PORTS.get(parts.scheme, 80)
    return f"{host}:{port}" + (f"@{host_id}" if host_id else "")
