"""The gate in front of an attempt's endpoint: entered before each send, left with how that went.

An upstream account has one for each key, an engine on this host one for streams without output.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgspec import Struct

from gateway.config.location import is_local
from gateway.core.route import Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.failures import saturated
from gateway.gates.hold import EngineHold
from gateway.gates.limiter import UpstreamLimiter
from gateway.gates.place import Place, UpstreamSaturated
from gateway.telemetry.tracing import Trace


class Waits(Struct, frozen=True, kw_only=True):
    """How long an attempt may wait before its request is to go elsewhere, and for what."""

    queue_until_s: float | None = None
    """On the loop's clock, in line at a gate; `None` is as long as the gate lets it."""
    engine_wait_s: float | None = None
    """From leaving the gate to the first output of a stream; `None` is as the route says."""
    engine_limit: int | None = None
    """How many streams may be without output at an engine on this host; `None` is any number."""


UNBOUND = Waits()


class Line(Protocol):
    """Who follows an attempt before it has answered or failed for good."""

    def queued(self) -> None:
        """It stands in line from now on."""
        ...

    def passed(self, queued_s: float, *, has_place: bool) -> None:
        """It has left the line, after so long."""
        ...

    def rotated(self, failure: UpstreamFailure) -> None:
        """It has failed with one key, and goes on with another."""
        ...


class Unwatched:
    """Nobody does."""

    def queued(self) -> None:
        """Nothing."""

    def passed(self, queued_s: float, *, has_place: bool) -> None:
        """Nothing."""

    def rotated(self, failure: UpstreamFailure) -> None:
        """Nothing."""


UNWATCHED = Unwatched()


class Pass:
    """Leave to send. MUST be left, once, when what was sent with it is over."""

    def __init__(self, gates: Gates | None = None) -> None:
        self._gates = gates
        self.account: Place | None = None
        self.engine: Place | None = None

    def first_output(self) -> None:
        """The engine has begun to answer, and may take the next."""
        if self._gates:
            self._gates.hold.leave(self.engine)

    def leave(self, status: int | None) -> None:
        """The upstream has answered with this: 200 when all went well, 0 is nothing.

        `None` where that was cut off.
        """
        if self._gates:
            self._gates.hold.leave(self.engine)
            self._gates.limiter.leave(self.account, status)


class Gates:
    """All gates, as attempts meet them."""

    def __init__(self, limiter: UpstreamLimiter, hold: EngineHold) -> None:
        self.limiter = limiter
        self.hold = hold

    async def enter(
        self,
        route: Route,
        key: str | None,
        *,
        is_stream: bool,
        waits: Waits,
        line: Line,
        trace: Trace,
    ) -> Pass:
        """Wait for leave to send with this key.

        Raises `UpstreamFailure` when there is none in time, and `StateUnavailable`.
        """
        leave = Pass(self)
        limit = waits.engine_limit if is_stream else None
        if limit is not None and not is_local(route.base_url):
            limit = None
        if limit is None and self.limiter.gate(route, key or "") is None:
            return leave
        now_s = asyncio.get_running_loop().time
        since_s: float | None = None
        has_place = False

        def queued() -> None:
            nonlocal since_s
            since_s = now_s()
            line.queued()

        with trace.gating(route) as step:
            try:
                if limit is not None:
                    leave.engine = await self.hold.enter(
                        route,
                        limit,
                        is_stream=is_stream,
                        deadline_s=waits.queue_until_s,
                        queued=queued,
                    )
                else:
                    leave.account = await self.limiter.enter(
                        route, key or "", waits.queue_until_s, queued=queued
                    )
                has_place = True
            except UpstreamSaturated as wait:
                raise saturated(route, wait) from None
            finally:
                waited_s = 0.0 if since_s is None else now_s() - since_s
                step.queued(waited_s)
                if since_s is not None:
                    line.passed(waited_s, has_place=has_place)
        return leave
