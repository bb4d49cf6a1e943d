"""Clients of the soak: each call has an id of its own, and whatever comes back must carry it.

Bare protocols, so that thousands of them cost little beside what they ask of the gateway.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import cast

import httptools
from msgspec import Struct

from tests.bench import soak_words as words
from tests.bench.machine import HOST
from tests.bench.soak_answer import Reading, Wrong
from tests.bench.soak_words import Message, Request, Work

OVERDUE_S = 45.0
"""Longer than any call takes; one that is not answered by then hangs."""


class End(StrEnum):
    """How a call has ended for its client."""

    WHOLE = "whole"
    """The answer came to its end, and all of it was this call's own."""
    LEFT = "left"
    """The client hung up, as it was told to."""
    ERROR = "error"
    """An error in OpenAI's shape, by status or as an event."""
    RESET = "reset"
    """The connection ended before the answer."""
    UNREACHABLE = "unreachable"
    """There was no connection."""
    OVERDUE = "overdue"
    """There was no end."""
    WRONG = "wrong"
    """Something came that does not belong there."""


class Call(Struct, kw_only=True):
    """One request, and how it has gone. Times are monotonic."""

    id: str
    work: Work
    stream: bool
    leave_after_s: float | None = None
    leave_with: float = 1.0
    """Which part of the request one that leaves sends."""
    server: int = 0
    """The number of the server that was asked."""
    began_s: float = 0.0
    ended_s: float = 0.0
    end: End = End.OVERDUE
    events: int = 0
    """Events that have come."""
    what: str = ""
    """Status and code of an error, or what was wrong."""

    def request(self) -> bytes:
        """The bytes to send."""
        body = words.encode(
            Request(messages=[Message(self.id)], work=self.work, stream=self.stream)
        )
        head = (
            f"POST {words.PATH} HTTP/1.1\r\nhost: {HOST}\r\nx-request-id: {self.id}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def ids() -> Iterator[str]:
    """Ids that nobody else has, as `soak_words.ID` has them."""
    run = secrets.token_hex(4)
    return (f"soak-{run}-{number:08}" for number in itertools.count())


class Connection(asyncio.Protocol):
    """One connection with one call at a time."""

    def __init__(self, idle: list[Connection]) -> None:
        self._idle = idle
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._ended: asyncio.Future[None] | None = None
        self.reading: Reading | None = None

    def begin(self, call: Call) -> asyncio.Future[None]:
        """Send a call; the future ends with its answer, or with the connection."""
        self.reading = Reading(call.id, call.work.events, is_stream=call.stream)
        self._ended = asyncio.get_running_loop().create_future()
        request = call.request()
        is_cut = call.leave_after_s is not None and call.leave_with < 1
        self._transport.write(request[: int(len(request) * call.leave_with)] if is_cut else request)
        return self._ended

    def close(self, *, at_once: bool = True) -> None:
        """Hang up. Nobody may be given this connection any more, be it ready for another call."""
        if self in self._idle:
            self._idle.remove(self)
        if at_once:
            self._transport.abort()
        else:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.reading is None:
            return self._fail(Wrong("bytes that nobody asked for"))
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._fail(cause if isinstance(cause, Wrong) else Wrong(f"not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)
        self._fail(exc or ConnectionResetError("closed"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        assert self.reading is not None
        self.reading.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        assert self.reading is not None
        self.reading.begin(self._parser.get_status_code())

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        assert self.reading is not None
        self.reading.feed(data)

    def on_message_complete(self) -> None:
        """Called by the parser: an answer has come whole."""
        assert self.reading is not None
        self.reading.finish()
        if self._ended and not self._ended.done():
            self.reading = None
            if self._parser.should_keep_alive():
                self._idle.append(self)
            else:
                self.close(at_once=False)
            self._ended.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._ended and not self._ended.done():
            self._ended.set_exception(error)
        if isinstance(error, Wrong):
            self.close()


class Client:
    """Makes calls to several servers, over connections that are used again."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._idle: list[list[Connection]] = [[] for _ in ports]

    async def make(self, call: Call) -> Call:
        """Make a call, follow its answer to the end or until it is to leave, and note how."""
        call.began_s = time.monotonic()
        reading: Reading | None = None
        try:
            connection = await self._connect(call.server)
            ended = connection.begin(call)
            reading = connection.reading
            await self._follow(call, connection, ended)
        except Wrong as wrong:
            call.end, call.what = End.WRONG, str(wrong)
        except OSError as error:
            call.end = End.UNREACHABLE if reading is None else End.RESET
            call.what = type(error).__name__
        call.ended_s = time.monotonic()
        if reading is not None:
            call.events = reading.events
            if call.end is End.WHOLE and reading.error:
                call.end, call.what = End.ERROR, reading.error
        return call

    async def close(self) -> None:
        """Hang up everywhere."""
        for connection in list(itertools.chain(*self._idle)):
            connection.close()
        await asyncio.sleep(0.05)

    async def _connect(self, server: int) -> Connection:
        idle = self._idle[server]
        if idle:
            return idle.pop()
        loop = asyncio.get_running_loop()
        port = self._ports[server]
        _, connection = await loop.create_connection(lambda: Connection(idle), HOST, port)
        return connection

    async def _follow(
        self, call: Call, connection: Connection, ended: asyncio.Future[None]
    ) -> None:
        limit_s = OVERDUE_S if call.leave_after_s is None else call.leave_after_s
        try:
            async with asyncio.timeout(limit_s):
                await ended
            call.end = End.WHOLE
        except TimeoutError:
            call.end = End.OVERDUE if call.leave_after_s is None else End.LEFT
        finally:
            if call.end is not End.WHOLE:
                connection.close(at_once=hash(call.id) % 2 == 0)
