"""The store inside this process, as a link."""

from __future__ import annotations

import asyncio

from gateway.state.embedded import EmbeddedLink


async def test_cancellation_is_never_lost() -> None:
    link = EmbeddedLink()
    await link.call("PING")
    for turns in range(20):
        call = asyncio.create_task(link.call("SET", "name", "value"))
        for _ in range(turns):
            await asyncio.sleep(0)
        was_running = call.cancel()
        await asyncio.wait({call})
        assert call.cancelled() is was_running
    await link.close()
