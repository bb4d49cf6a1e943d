"""Drive an ASGI application by hand: see every message, and hang up when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from starlette.types import ASGIApp, Message, Scope


class Call:
    """One request to an application, running in a task of its own, and what has come back."""

    def __init__(
        self,
        app: ASGIApp,
        body: bytes | Sequence[bytes] = b"",
        *,
        path: str = "/v1/chat/completions",
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        peer: str | None = "127.0.0.1",
        ends: bool = True,
    ) -> None:
        """Start. A sequence of bodies comes in pieces; with `ends` false the last one is due."""
        self.messages: list[Message] = []
        pieces = [body] if isinstance(body, bytes) else list(body)
        self._incoming: list[Message] = [
            {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
        ]
        self._incoming[-1]["more_body"] = not ends
        self._left = asyncio.Event()
        self._changed = asyncio.Event()
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [
                (name.encode("latin-1"), value.encode("latin-1"))
                for name, value in (headers or {}).items()
            ],
            "client": (peer, 1) if peer else None,
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def leave(self) -> None:
        """Hang up."""
        self._left.set()

    async def finished(self) -> Self:
        """Wait for the application to return."""
        await asyncio.wait_for(self.task, 10)
        return self

    async def until(self, seen: Callable[[Self], bool]) -> None:
        """Wait until something has come back."""
        async with asyncio.timeout(10):
            while not seen(self):
                self._changed.clear()
                await self._changed.wait()

    @property
    def started(self) -> bool:
        """Whether a status has come."""
        return bool(self.messages)

    @property
    def status(self) -> int:
        """The status; there MUST have been exactly one."""
        [start] = [m for m in self.messages if m["type"] == "http.response.start"]
        return int(start["status"])

    @property
    def headers(self) -> dict[str, str]:
        """The response headers."""
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        """The body so far."""
        return b"".join(m["body"] for m in self.messages if m["type"] == "http.response.body")

    @property
    def is_complete(self) -> bool:
        """Whether the body has come to its end."""
        return bool(self.messages) and self.messages[-1].get("more_body") is False

    async def _receive(self) -> Message:
        if self._incoming:
            return self._incoming.pop(0)
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        assert not self.is_complete, "nothing may follow the end of a body"
        self.messages.append(message)
        self._changed.set()
        if self.is_complete:  # servers say so then
            self._left.set()
