"""The upstream of paced streams: each has a token at once, and one per interval without end.

`python -m tests.bench.paced PORT...` serves on loopback. `POST /pace?ms=20` sets the interval of
all streams that begin from then on. Written on the bare protocol, so that it costs next to nothing.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import uvloop

from tests.bench import payloads
from tests.bench.machine import HOST

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


FIRST = _chunk(payloads.first())
TOKENS = [_chunk(payloads.token(number)) for number in range(10)]


class Pace:
    """The interval of new streams."""

    interval_s = 0.02


class Connection(asyncio.Protocol):
    """One connection: plain answers, then perhaps one stream until the other side hangs up."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False
        self._sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()

    def pause_writing(self) -> None:
        """A reader that cannot follow misses tokens."""
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._url = url

    def on_message_complete(self) -> None:
        """Called by the parser: a request has come whole."""
        url = httptools.parse_url(self._url)
        if url.path == payloads.PATH.encode():
            self._transport.write(HEAD + FIRST + TOKENS[0])
            self._next(self._loop.time(), self._pace.interval_s)
            return
        if url.path == b"/pace":
            self._pace.interval_s = int(url.query.removeprefix(b"ms=")) / 1000
        self._transport.write(PLAIN)

    def _next(self, last_s: float, interval_s: float) -> None:
        due_s = last_s + interval_s
        self._timer = self._loop.call_at(due_s, self._tick, due_s, interval_s)

    def _tick(self, due_s: float, interval_s: float) -> None:
        if not self._is_full:
            self._sent += 1
            self._transport.write(TOKENS[self._sent % 10])
        self._next(max(due_s, self._loop.time() - interval_s), interval_s)


async def serve(ports: list[int]) -> None:
    """Serve until killed."""
    loop, pace = asyncio.get_running_loop(), Pace()
    for port in ports:
        await loop.create_server(lambda: Connection(pace), HOST, port, backlog=2048)
    await loop.create_future()


if __name__ == "__main__":
    uvloop.run(serve([int(port) for port in sys.argv[1:]]))
