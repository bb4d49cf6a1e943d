"""One request on one connection, and the response to it as it arrives.

The connection feeds what it receives, the parser's callbacks note what it means, and the one
task that sends the request and reads the body is woken to look. Once the response has come whole
the connection is handed back, read or not; anything else that ends an exchange closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

import httptools
import httpx

from gateway.dispatch.http1.request import Outgoing

MAX_HEAD_BYTES = 65_536
"""Bound on a response's head together with the interim heads before it, and on its trailers."""
MAX_HEADERS = 256
HIGH_WATER_BYTES = 262_144
"""How much of a body is held for a slow reader before the peer is left to wait."""
LOW_WATER_BYTES = 65_536


class Link(Protocol):
    """What an exchange needs of its connection."""

    is_write_paused: bool

    def write(self, head: bytes, body: bytes = b"") -> None:
        """Send, or buffer, these bytes."""

    def pause_reading(self) -> None:
        """Leave the peer to wait."""

    def resume_reading(self) -> None:
        """Receive again."""

    def release(self, *, is_reusable: bool) -> None:
        """Take the end of the exchange: it MUST NOT be called any more."""

    def abort(self) -> None:
        """Close at once."""


class Exchange(httpx.AsyncByteStream):
    """One request and its response. As a stream it is the response's body; one task uses it."""

    def __init__(
        self,
        link: Link,
        outgoing: Outgoing,
        read_s: float | None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`read_s` bounds each wait for the peer's next bytes.

        `loop` is the running one, for callers that know it: asking costs a call to the kernel.
        """
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.http_version = b"HTTP/1.1"
        self.error: httpx.TransportError | None = None
        """Why there will be no more, unless the response is complete."""
        self.is_answered = False
        """Whether the peer has sent a byte."""
        self._link: Link | None = link
        self._loop = loop
        self._outgoing = outgoing
        self._read_s = read_s
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._chunks: deque[bytes] = deque()
        self._held_bytes = 0
        self._bare_bytes = 0  # received since the last byte of a body
        self._has_head = False
        self._is_complete = False
        self._is_sent = False
        self._is_reusable = False
        self._ends_with_connection = False
        self._is_reading_paused = False

    # The task's side.

    async def send(self, write_s: float | None) -> None:
        """Send the request and wait for the head of its response.

        `write_s` bounds each wait for the peer to take more. A final response that comes before
        the request is out ends the sending. Raises httpx.TransportError.
        """
        assert self._link is not None
        self._link.write(self._outgoing.head, self._outgoing.body)
        if self._link.is_write_paused:
            await self._drain(write_s)
        if self._outgoing.parts is not None:
            await self._send_parts(write_s)
        else:
            self._is_sent = True
        while not self._has_head:
            if self.error is not None:
                raise self.error
            await self._wait(self._read_s, httpx.ReadTimeout)

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself: a body can be read once."""
        return self

    async def __anext__(self) -> bytes:
        """The next bytes of the body; those that came before an error come before its raising."""
        while not self._chunks:
            if self._is_complete:
                raise StopAsyncIteration
            if self.error is not None:
                raise self.error
            await self._wait(self._read_s, httpx.ReadTimeout)
        chunk = self._chunks.popleft()
        self._held_bytes -= len(chunk)
        if self._is_reading_paused and self._held_bytes <= LOW_WATER_BYTES:
            self._resume_reading()
        return chunk

    async def aclose(self) -> None:
        """Give up the rest of the response; the connection is closed unless it has all come."""
        if self._link is not None:
            self.fail(httpx.ReadError("closed before the end of the response"))
        self._chunks.clear()

    async def _send_parts(self, write_s: float | None) -> None:
        """Send a body as its parts come, unless the response comes first."""
        async with contextlib.aclosing(self._outgoing.framed()) as parts:
            async for part in parts:
                if self._link is None or self._has_head:
                    return
                self._link.write(part)
                await self._drain(write_s)
        self._is_sent = True

    async def _drain(self, write_s: float | None) -> None:
        """Wait until the peer takes more, or it does not matter any more."""
        while self._link is not None and self._link.is_write_paused and not self._has_head:
            await self._wait(write_s, httpx.WriteTimeout)

    async def _wait(self, limit_s: float | None, overdue: type[httpx.TimeoutException]) -> None:
        """Wait for the next change. If it is not waited for to the end, the exchange fails."""
        assert self._waiter is None, "two tasks use one response"
        loop = self._loop or asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        is_woken = False
        try:
            if limit_s is None:
                await waiter
            else:
                async with asyncio.timeout(limit_s):
                    await waiter
            is_woken = True
        except TimeoutError:
            raise overdue(f"nothing for {limit_s} s") from None
        finally:
            self._waiter = None
            if not is_woken:
                self.fail(httpx.ReadError("given up while waiting for the peer"))

    # The connection's side.

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""
        if self._parser is None:
            return
        self.is_answered = True
        self._bare_bytes += len(data)
        held_bytes = self._held_bytes
        fault: str | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            fault = str(error.__context__ or error)
        if self._is_complete:
            # A fault after the end of a response is somebody else's response, or garbage.
            is_clean = fault is None and not (
                self._outgoing.is_head and not data.endswith(b"\r\n\r\n")
            )
            self._finish(is_reusable=self._is_reusable and is_clean)
        elif fault is not None:
            self.fail(httpx.RemoteProtocolError(fault))
        elif self._held_bytes == held_bytes:
            if self._bare_bytes > MAX_HEAD_BYTES:
                self.fail(httpx.RemoteProtocolError("response head or trailers too large"))
        else:
            self._bare_bytes = 0
            if self._held_bytes > HIGH_WATER_BYTES and not self._is_reading_paused:
                self._is_reading_paused = True
                assert self._link is not None
                self._link.pause_reading()
        self.wake()

    def lose(self, error: Exception | None) -> None:
        """Take the end of the peer's bytes: regular without an `error`."""
        if self._link is None:
            return
        if error is None and self._has_head and self._ends_with_connection:
            self._is_complete = True
            self._finish(is_reusable=False)
            self.wake()
            return
        if error is not None:
            self.fail(httpx.ReadError(str(error) or type(error).__name__))
        elif self.is_answered:
            self.fail(httpx.RemoteProtocolError("peer closed in the middle of its response"))
        else:
            self.fail(httpx.RemoteProtocolError("peer closed without a response"))

    def fail(self, error: httpx.TransportError) -> None:
        """End an exchange that has not ended: close its connection."""
        link, self._link = self._link, None
        if link is None:
            return
        self.error = error
        self._parser = None
        link.abort()
        self.wake()

    def _finish(self, *, is_reusable: bool) -> None:
        """Hand back the connection after a complete response."""
        if self._is_reading_paused:
            self._resume_reading()
        link, self._link = self._link, None
        self._parser = None  # it holds our methods: without this each exchange were a cycle
        assert link is not None
        is_reusable = is_reusable and self._is_sent and not self._outgoing.closes
        link.release(is_reusable=is_reusable)

    def _resume_reading(self) -> None:
        self._is_reading_paused = False
        if self._link is not None:
            self._link.resume_reading()

    def wake(self) -> None:
        """Let the task look what has changed."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The parser's callbacks. What they raise ends the parsing, as an HttpParserError.

    def on_message_begin(self) -> None:
        """A response begins, which after a complete one was not asked for."""
        if self._is_complete:
            raise httpx.RemoteProtocolError("bytes after the end of the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is read, or a trailer, which nobody asks for."""
        if not self._has_head:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A head is read, be it an interim one."""
        parser = self._parser
        assert parser is not None
        self.status = parser.get_status_code()
        if self.status < 100:
            raise httpx.RemoteProtocolError("a status that is none")
        if self.status < 200:
            if self.status == 101:
                raise httpx.RemoteProtocolError("the peer switched protocols unasked")
            self.headers.clear()
            return
        self._check_size()
        self._has_head = True
        if parser.should_keep_alive():
            self._is_reusable = True
        else:
            self._ends_with_connection = not _is_framed(self.headers)
            if parser.get_http_version() == "1.0":
                self.http_version = b"HTTP/1.0"
        if self._outgoing.is_head:
            self._is_complete = True

    def _check_size(self) -> None:
        """Refuse a head that is too large. While it is not whole the bytes received are counted."""
        if len(self.headers) > MAX_HEADERS:
            raise httpx.RemoteProtocolError("too many response headers")
        if self._bare_bytes > MAX_HEAD_BYTES:  # which may be more than the head
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MAX_HEAD_BYTES:
                raise httpx.RemoteProtocolError("response head too large")

    def on_body(self, data: bytes) -> None:
        """Bytes of the body."""
        if self._is_complete:
            raise httpx.RemoteProtocolError("a body where there is none")
        self._chunks.append(data)
        self._held_bytes += len(data)

    def on_message_complete(self) -> None:
        """A response is read, be it an interim one."""
        if self._has_head:
            self._is_complete = True


def _is_framed(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a response says where it ends, other than by the end of the connection."""
    is_framed = False
    for name, value in headers:
        match name.lower():
            case b"transfer-encoding":
                return value.rstrip().lower().endswith(b"chunked")
            case b"content-length":
                is_framed = True
    return is_framed
