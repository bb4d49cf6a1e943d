"""A time limit on many waits in a row, which costs next to nothing to move."""

from __future__ import annotations

import asyncio


class Deadline:
    """Cancels the task that made it when a wait of it is overdue.

    `asyncio.timeout` sets a timer for each wait. Here one timer looks in when the deadline that it
    was set for comes, and goes on sleeping where that has been moved meanwhile.

    Set a time only around an await, and ask `has_passed` when that is cancelled.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop` is the running one, for callers that know it."""
        self._loop = loop or asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._due_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_fired = False

    def move(self, due_s: float | None) -> None:
        """Set the time, on the loop's clock, at which a wait is overdue; `None` is never."""
        self._due_s = due_s
        if due_s is None or (self._timer is not None and self._timer.when() <= due_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._look)

    def has_passed(self) -> bool:
        """Whether a cancellation that was just caught is this deadline's and nobody else's."""
        if not self._has_fired:
            return False
        self._has_fired = False
        return self._task.uncancel() <= self._cancelling

    def close(self) -> None:
        """Be done."""
        self._due_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._due_s is None:
            return
        if self._due_s > self._loop.time():
            self._timer = self._loop.call_at(self._due_s, self._look)
            return
        self._has_fired = True
        self._task.cancel()
