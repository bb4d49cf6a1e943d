"""The embedded store: Redis inside the process, for a first look where there is no Redis.

Single-process, slow and not durable. Scripts run on it unchanged but for the shebang.
"""

from __future__ import annotations

from typing import Any

from fakeredis import FakeAsyncRedis

from gateway.state.link import Argument


class EmbeddedLink:
    """A link (`link.Link`) to a store of its own, which goes with it."""

    def __init__(self) -> None:
        # A timeout is kept by `wait_for`, which may swallow a cancellation before Python 3.12.
        self._store = FakeAsyncRedis(version=(6, 2), decode_responses=True, socket_timeout=None)

    async def call(self, *command: Argument) -> Any:
        """Run a command. Nothing is waited for."""
        return await self._store.execute_command(*command)  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Let go of the store."""
        await self._store.aclose()
