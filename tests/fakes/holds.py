"""Points at which a scripted double waits until the test lets it go on."""

from __future__ import annotations

import asyncio


class Hold:
    """Say that a point is reached, and wait there. Once let go it holds nobody up any more."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._go = asyncio.Event()

    async def wait(self) -> None:
        """Wait here."""
        self.reached.set()
        await self._go.wait()

    def go(self) -> None:
        """Let whoever waits go on."""
        self._go.set()
