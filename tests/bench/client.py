"""The client of what wrk cannot do: requests at a constant rate, and open streams.

Bare protocols on uvloop, so that the client's own time stays small beside what it measures.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import cast
from urllib.parse import urlsplit

import httptools

from tests.bench import payloads

EVENT = b"data: {"
DRAIN_S = 20.0
OPEN_AT_ONCE = 32


class Failed(Exception):
    """Answers were wrong, or did not come."""


class Connection(asyncio.Protocol):
    """One connection with one request under way at most."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._ended: asyncio.Future[int] | None = None
        self.events = 0
        """Events that have come, of all its answers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ended and not self._ended.done():
            self._ended.set_exception(Failed("the connection was closed before the answer"))

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self.events += data.count(EVENT)

    def on_message_complete(self) -> None:
        """Called by the parser: an answer has come whole."""
        if self._ended and not self._ended.done():
            self._ended.set_result(self._parser.get_status_code())

    def send(self, request: bytes) -> asyncio.Future[int]:
        """Send a request; the future ends with its answer and holds the status."""
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._ended

    def close(self) -> None:
        """Hang up."""
        self._ended = None
        self._transport.abort()


class Client:
    """Connections to one server."""

    def __init__(self, url: str, headers: Mapping[str, str], *, stream: bool) -> None:
        where = urlsplit(url)
        self._host, self._port = where.hostname or "", where.port or 80
        body = payloads.request(stream=stream)
        lines = {"host": where.netloc, **headers, "content-length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._request = f"POST {payloads.PATH} HTTP/1.1\r\n{head}\r\n".encode() + body
        self._connections: list[Connection] = []
        self._idle: list[Connection] = []
        self._streams: list[asyncio.Future[int]] = []

    async def at_rate(self, rate: float, seconds: float) -> list[float]:
        """Send at a constant rate, never waiting for answers; returns how long each took, in s.

        Time is taken from the sending: a late timer of ours is not the server's fault.
        """
        loop = asyncio.get_running_loop()
        took: list[float] = []
        calls = []
        start_s = loop.time()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(start_s + number / rate - loop.time())
            calls.append(asyncio.ensure_future(self._timed(took)))
        _, late = await asyncio.wait(calls, timeout=DRAIN_S)
        if late:
            raise Failed(f"{len(late)} of {len(calls)} answers did not come")
        for call in calls:
            call.result()
        return took

    async def ask(self, count: int, at_once: int) -> None:
        """Send so many requests, each connection the next one as soon as it has its answer."""
        left = iter(range(count))

        async def send() -> None:
            connection = await self._connect()
            for _ in left:
                status = await connection.send(self._request)
                if status != 200:
                    raise Failed(f"an answer was {status}")

        await asyncio.gather(*(send() for _ in range(at_once)))

    async def open_streams(self, count: int, timeout_s: float) -> int:
        """Open streams and wait until each has brought something; returns how many have in time."""
        while (missing := count - len(self._streams)) > 0:
            fresh = [self._connect() for _ in range(min(missing, OPEN_AT_ONCE))]
            self._streams += [c.send(self._request) for c in await asyncio.gather(*fresh)]
        deadline_s = time.monotonic() + timeout_s
        while (begun := sum(bool(c.events) for c in self._connections)) < count:
            if time.monotonic() > deadline_s:
                break
            self.check_streams()
            await asyncio.sleep(0.05)
        return begun

    @contextlib.asynccontextmanager
    async def repeating(self, count: int) -> AsyncIterator[None]:
        """Have so many streams under way, each followed by the next as soon as it has ended."""
        tasks = [asyncio.ensure_future(self._repeat()) for _ in range(count)]
        yield
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()

    def check_streams(self) -> None:
        """Make sure that all are open."""
        if any(stream.done() for stream in self._streams):
            raise Failed("a stream has ended")

    def events(self) -> int:
        """Events that have come on all connections."""
        return sum(connection.events for connection in self._connections)

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections:
            connection.close()

    async def _repeat(self) -> None:
        connection = await self._connect()
        while True:
            status = await connection.send(self._request)
            if status != 200:
                raise Failed(f"an answer was {status}")

    async def _timed(self, took: list[float]) -> None:
        connection = self._idle.pop() if self._idle else await self._connect()
        sent_s = time.perf_counter()
        status = await connection.send(self._request)
        took.append(time.perf_counter() - sent_s)
        self._idle.append(connection)
        if status != 200:
            raise Failed(f"an answer was {status}")

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self._host, self._port)
        self._connections.append(connection)
        return connection
