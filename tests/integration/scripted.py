"""An upstream that a test plays by itself, byte for byte, on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Upstream:
    """What has come to it."""

    def __init__(self) -> None:
        self.connections = 0
        self.hung_up = asyncio.Event()
        """Set when a client has gone before it was hung up on."""


@asynccontextmanager
async def upstream(
    port: int, *parts: bytes, head: bytes = HEAD, stays: bool = False
) -> AsyncIterator[Upstream]:
    """Answer every request with these bytes, then hang up, or stay silent with `stays`."""
    seen = Upstream()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + b"".join(parts))
            await writer.drain()
            while stays and await reader.read(65536):
                pass
            if stays:
                seen.hung_up.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            seen.hung_up.set()
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield seen
    finally:
        listener.close()


def event(data: Any) -> bytes:
    """One event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(finish: str | None = None, **said: Any) -> bytes:
    """A chunk with one choice."""
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [choice]})


ROLE = delta(role="assistant", content="")
DONE = b"data: [DONE]\n\n"
