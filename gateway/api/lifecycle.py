"""Whether this replica takes work, and the end of work that outlasts the drain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive

from gateway.api.request import ClientGone
from gateway.errors import GatewayError

WATCH_AFTER_S = 0.05
"""How long a request may run before its client is watched for a hang-up."""


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
        self._is_over = False
        self._running: set[_Work] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def cut_off(self) -> None:
        """End what still runs, and whatever may yet come: the drain's time is over."""
        self._is_over = True
        for work in self._running:
            work.end(ShuttingDown())

    async def run(self, work: Coroutine[Any, Any, None], receive: Receive) -> bool:
        """Do a request's work until it ends, its client hangs up, or the drain is over.

        Returns whether the client stayed. The work has ended, or been cancelled and unwound, when
        this returns. Raises what the work raises, and `ShuttingDown`.
        """
        if self._is_over:
            work.close()
            raise ShuttingDown
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # asked once: it costs a call to the kernel
        running = _Work(receive, self._loop)
        self._running.add(running)
        try:
            await work
        except asyncio.CancelledError:
            if running.ended_by is None:
                raise
            running.task.uncancel()
            if isinstance(running.ended_by, ShuttingDown):
                raise running.ended_by from None
            return False
        finally:
            self._running.discard(running)
            running.stop_watching()
        return True


class _Work:
    """The current task at a request's work, and the eye on its client.

    Most requests are done before a watch is worth a task of its own.
    """

    def __init__(self, receive: Receive, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.current_task(loop)
        assert task is not None
        self.task = task
        self.ended_by: GatewayError | ClientGone | None = None
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._timer = loop.call_later(WATCH_AFTER_S, self._watch)

    def end(self, reason: GatewayError | ClientGone) -> None:
        """Cancel the work, once."""
        if self.ended_by is None:
            self.ended_by = reason
            self.task.cancel()

    def stop_watching(self) -> None:
        """The work is done."""
        self._timer.cancel()
        if self._watcher:
            self._watcher.cancel()

    def _watch(self) -> None:
        self._watcher = asyncio.ensure_future(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.end(ClientGone())
