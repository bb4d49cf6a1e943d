"""Peers for a transport: a scripted raw server on a real socket, and requests for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

PATIENCE_S = 5.0
"""How long something that must happen at once is waited for on a busy machine."""

_GONE = (
    asyncio.IncompleteReadError,
    asyncio.CancelledError,
    OSError,
    RuntimeError,  # what uvloop calls a write to a connection that is closed
)

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def with_length(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%s\r\n%s" % (len(body), lines, body)


class Conversation:
    """The peer's end of one connection."""

    def __init__(
        self, peer: Peer, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.peer = peer
        self.number = number
        """The how-manieth connection it is, from 1."""
        self.reader = reader
        self.writer = writer

    async def head(self) -> bytes:
        """The head of the next request. Ends the script when there is none."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.peer.heads.append((self.number, head))
        return head

    async def request(self) -> bytes:
        """The body of the next request."""
        head = (await self.head()).lower()
        if b"transfer-encoding: chunked" in head:
            body = bytearray()
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
            return bytes(body)
        if b"content-length: " not in head:
            return b""
        size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        return await self.reader.readexactly(size)

    async def send(self, *parts: bytes) -> None:
        """Send each part on its own."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def wait_for_close(self) -> None:
        """Read until the client has closed."""
        while await self.reader.read(65_536):
            pass

    def half_close(self) -> None:
        """Send no more, but keep reading."""
        self.writer.write_eof()

    def reset(self) -> None:
        """Close with a RST."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Conversation], Awaitable[None]]


class Peer:
    """A server that does on every connection what its script says, then closes it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.port = 0
        self.scheme = "http"
        self.connections = 0
        self.open = 0
        self.heads: list[tuple[int, bytes]] = []
        """The requests, each with the number of its connection."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1/x"

    async def start(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self._listener = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=ssl_context, backlog=1_000
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        self.scheme = "http" if ssl_context is None else "https"

    def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def aclose(self) -> None:
        self.stop_listening()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PATIENCE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            with contextlib.suppress(*_GONE):
                await self.script(Conversation(self, self.connections, reader, writer))
        finally:
            writer.close()
            await _flushed(writer)
            self.open -= 1
            self._tasks.discard(task)


async def _flushed(writer: asyncio.StreamWriter) -> None:
    """Wait until a closing connection is closed. A client that does not read loses the rest."""
    try:
        async with asyncio.timeout(0.5):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except _GONE:
        return


def answers(*parts: bytes) -> Script:
    """Answer every request of a connection with these bytes."""

    async def script(c: Conversation) -> None:
        while True:
            await c.request()
            await c.send(*parts)

    return script


def answers_once(*parts: bytes) -> Script:
    """Answer one request, then close."""

    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(*parts)

    return script


async def echoes(c: Conversation) -> None:
    """Answer every request with its body."""
    while True:
        await c.send(with_length(await c.request()))


def make_request(
    url: str,
    content: bytes | AsyncIterator[bytes] | None = b"{}",
    *,
    method: str = "POST",
    headers: Any = None,
    connect: float | None = PATIENCE_S,
    **timeouts: float | None,
) -> httpx.Request:
    limits = {"connect": connect, "read": None, "write": None, "pool": None, **timeouts}
    return httpx.Request(
        method, url, content=content, headers=headers, extensions={"timeout": limits}
    )


async def read(response: httpx.Response) -> bytes:
    """The whole body as its bytes came; closes the response."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    try:
        return b"".join([chunk async for chunk in response.stream])
    finally:
        await response.aclose()


async def fetch(
    transport: httpx.AsyncBaseTransport,
    url: str,
    content: bytes | AsyncIterator[bytes] | None = b"{}",
    **options: Any,
) -> tuple[int, bytes]:
    """The status and the whole body of one request's response."""
    async with asyncio.timeout(4 * PATIENCE_S):
        request = make_request(url, content, **options)
        response = await transport.handle_async_request(request)
        return response.status_code, await read(response)


async def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    for _ in range(int(PATIENCE_S / 0.005)):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(what)


def open_sockets() -> int:
    """How many sockets this process has."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return count
