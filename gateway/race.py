"""Two attempts of one request at a time, of which the client gets one.

Each is a task. The first to have output leads: the other is cancelled. One that ends without output
leaves the other to go on alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from gateway.errors import GatewayError


class Race:
    """The attempt that was sent, and one beside it that may never be."""

    def __init__(self) -> None:
        self._legs: list[asyncio.Task[bool]] = []
        self._leader: asyncio.Task[Any] | None = None
        self._is_joined = False

    async def run(
        self, first: Coroutine[Any, Any, bool], second: Coroutine[Any, Any, bool]
    ) -> bool:
        """Run both, each of which says whether it has answered. Returns whether one has.

        The second is given up when the first has ended before it has joined. Raises what either
        raises; a `GatewayError` only where none has answered.
        """
        self._legs = legs = [asyncio.create_task(first), asyncio.create_task(second)]
        try:
            await asyncio.wait(legs[:1])
            if self._is_joined:
                await asyncio.wait(legs)
        finally:
            for leg in legs:
                leg.cancel()
            await asyncio.gather(*legs, return_exceptions=True)
        ended = [leg for leg in legs if not leg.cancelled()]
        errors = [error for leg in ended if (error := leg.exception())]
        has_answered = any(leg.result() for leg in ended if not leg.exception())
        for error in errors:
            if not (has_answered and isinstance(error, GatewayError)):
                raise error
        return has_answered

    def join(self) -> None:
        """The second is sent."""
        self._is_joined = True

    async def lead(self) -> None:
        """The current task has the answer: cut the other off.

        The first wins ties: what has come to it by now, it gets to see before.
        """
        task = asyncio.current_task()
        if task is not self._legs[0]:
            await asyncio.sleep(0)
        self._leader = task
        for leg in self._legs:
            if leg is not task:
                leg.cancel()

    @property
    def is_lost(self) -> bool:
        """Whether another than the current task leads."""
        return self._leader not in (None, asyncio.current_task())
