"""Whether this replica takes work, and the end of work that outlasts the drain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive

from gateway.errors import GatewayError


class ShuttingDown(GatewayError):
    """The replica is going, and the request did not end within the drain."""

    status = 503
    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("The gateway is shutting down.", retry_after_s=1)


class Lifecycle:
    """starting -> ready -> draining. Lives as long as the replica."""

    def __init__(self) -> None:
        self.is_started = False
        self.is_draining = False
        self._drained_out = asyncio.Event()

    def cut_off(self) -> None:
        """End what still runs: the drain's time is over."""
        self._drained_out.set()

    async def run(self, work: Coroutine[Any, Any, None], receive: Receive) -> bool:
        """Do a request's work until it ends, its client hangs up, or the drain is over.

        Returns whether the client stayed. The work has ended, or been cancelled and unwound, when
        this returns. Raises what the work raises, and `ShuttingDown`.
        """
        task = asyncio.create_task(work)
        gone = asyncio.create_task(_disconnected(receive))
        cut = asyncio.create_task(self._drained_out.wait())
        try:
            await asyncio.wait({task, gone, cut}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watcher in (gone, cut):
                watcher.cancel()
            if not task.done():
                task.cancel()
            await asyncio.wait({task, gone, cut})
        if not task.cancelled():
            await task
            return True
        if cut.done() and not cut.cancelled():
            raise ShuttingDown
        return False


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
