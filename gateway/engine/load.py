"""The engine's slots, and counts of what has gone through them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Load:
    """A first-come line in front of `slots` places; 0 is no limit.

    `active` requests hold a slot, `waiting` ones stand in line. `cancelled` counts the clients
    that left before their answer was complete, wherever they stood.
    """

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots) if slots else None
        self.requests = 0
        self.active = 0
        self.max_active = 0
        self.waiting = 0
        self.cancelled = 0
        self.health_checks = 0

    def reset(self) -> None:
        """Forget the past; requests under way stay active."""
        self.requests = self.cancelled = self.health_checks = 0
        self.max_active = self.active

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot, waiting in line for one."""
        if self._slots is not None:
            self.waiting += 1
            try:
                await self._slots.acquire()
            finally:
                self.waiting -= 1
        self.active += 1
        self.max_active = max(self.max_active, self.active)
        try:
            yield
        finally:
            self.active -= 1
            if self._slots is not None:
                self._slots.release()
