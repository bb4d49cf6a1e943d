"""However the bytes of a response are cut into reads, they are the same response.

Over a connection of ours without a socket, so that the cuts are exactly those of the test.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dispatch.http1.connection import Connection
from gateway.dispatch.http1.exchange import Exchange
from gateway.dispatch.http1.request import encode
from tests.contract.transport.peers import OK, http_chunk


class Wire(NamedTuple):
    """A valid response and what it says."""

    method: str
    data: bytes
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_reusable: bool


class NoSocket(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False
        self.is_paused = False
        self.unsent_bytes = 0

    def write(self, data: Any) -> None:
        pass

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        self.is_aborted = True


class Owner:
    """Knows whether a connection came back."""

    def __init__(self) -> None:
        self.has_it = False

    def released(self, connection: Connection) -> None:
        self.has_it = True

    def closed(self, connection: Connection) -> None:
        self.has_it = False


names = st.from_regex(rb"x-[a-z0-9]{1,10}", fullmatch=True)
values = st.from_regex(rb"[!-~]([ -~]{0,20}[!-~])?", fullmatch=True)
header_lists = st.lists(st.tuples(names, values), max_size=5)


def block(headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n"


@st.composite
def wires(draw: st.DrawFn) -> Wire:
    """A response framed in any way, with interim ones before it."""
    interim = b"".join(
        b"HTTP/1.1 %d Wait\r\n%s" % (status, block(headers))
        for status, headers in draw(
            st.lists(st.tuples(st.sampled_from([100, 102, 103]), header_lists), max_size=2)
        )
    )
    framing = draw(st.sampled_from(["length", "chunks", "end", "HEAD", "204", "304"]))
    status = (
        int(framing)
        if framing.isdigit()
        else draw(st.integers(200, 599).filter(lambda status: status not in (204, 304)))
    )
    headers = draw(header_lists)
    parts = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=5))
    body = b"".join(parts)
    tail = b""
    match framing:
        case "length":
            headers = [*headers, (b"Content-Length", b"%d" % len(body))]
            tail = body
        case "chunks":
            headers = [(b"Transfer-Encoding", b"chunked"), *headers]
            tail = b"".join(map(http_chunk, parts)) + b"0\r\n" + block(draw(header_lists))
        case "end":
            tail = body
        case "HEAD":
            headers = [*headers, (b"content-length", b"%d" % len(body))]
    head = b"HTTP/1.1 %d Reason\r\n%s" % (status, block(headers))
    return Wire(
        method="HEAD" if framing == "HEAD" else "POST",
        data=interim + head + tail,
        status=status,
        headers=headers,
        body=body if framing in ("length", "chunks", "end") else b"",
        is_reusable=framing != "end",
    )


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


class Result(NamedTuple):
    """What became of an exchange."""

    error: httpx.TransportError | None
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_kept: bool
    is_closed: bool


async def receive(method: str, reads: list[bytes], *, ends: bool) -> Result:
    """Feed reads to a connection whose response is read meanwhile, then end it or not."""
    owner, socket = Owner(), NoSocket()
    connection = Connection(owner)
    connection.connection_made(socket)
    request = httpx.Request(method, "http://h/", content=b"" if method == "HEAD" else b"{}")
    exchange = Exchange(connection, encode(request), None)
    connection.begin(exchange)
    body = bytearray()

    async def read() -> httpx.TransportError | None:
        try:
            await exchange.send(None)
            async for chunk in exchange:
                body.extend(chunk)
        except httpx.TransportError as error:
            return error
        return None

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    for piece in reads:
        connection.data_received(piece)
        await asyncio.sleep(0)
    if ends:
        connection.eof_received()
    async with asyncio.timeout(5):
        error = await reader
    return Result(
        error,
        exchange.status,
        exchange.headers,
        bytes(body),
        is_kept=owner.has_it,
        is_closed=socket.is_aborted,
    )


@settings(max_examples=100, deadline=None)
@given(wire=wires(), cuts=st.lists(st.integers(0, 2_000), max_size=30))
def test_any_split_of_a_response_is_the_same_response(wire: Wire, cuts: list[int]) -> None:
    reads = pieces(wire.data, cuts)

    result = asyncio.run(receive(wire.method, reads, ends=not wire.is_reusable))

    assert result.error is None
    assert (result.status, result.headers) == (wire.status, wire.headers)
    assert result.body == wire.body
    if wire.method != "HEAD":  # whose end in two reads is not waited for
        assert result.is_kept == wire.is_reusable
    assert result.is_closed != result.is_kept


@settings(max_examples=100, deadline=None)
@given(wire=wires(), cuts=st.lists(st.integers(0, 2_000), max_size=5), at=st.integers(0, 2_000))
def test_any_cut_of_a_framed_response_is_an_error(wire: Wire, cuts: list[int], at: int) -> None:
    data = wire.data[: at % len(wire.data)]

    result = asyncio.run(receive(wire.method, pieces(data, cuts), ends=True))

    if wire.is_reusable:
        assert isinstance(result.error, httpx.RemoteProtocolError)
        assert wire.body.startswith(result.body)
    assert result.is_closed
    assert not result.is_kept


@settings(max_examples=100, deadline=None)
@given(
    wire=wires(),
    at=st.integers(0, 2_000),
    junk=st.binary(max_size=20),
    removed=st.integers(0, 20),
    cuts=st.lists(st.integers(0, 2_000), max_size=5),
)
def test_any_bytes_are_a_response_or_an_error(
    wire: Wire, at: int, junk: bytes, removed: int, cuts: list[int]
) -> None:
    at %= len(wire.data)
    data = wire.data[:at] + junk + wire.data[at + removed :]

    result = asyncio.run(receive(wire.method, pieces(data, cuts), ends=True))

    assert result.is_closed
    assert result.error is None or isinstance(result.error, httpx.TransportError)


async def test_a_head_in_one_read_is_bounded_too() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: " + b"a" * 70_000 + b"\r\n\r\n"

    result = await receive("POST", [head + b"ok"], ends=False)

    assert isinstance(result.error, httpx.RemoteProtocolError)
    assert result.is_closed


async def test_a_response_that_came_in_large_reads_leaves_its_connection_reading() -> None:
    """Some transports hand on what they had received before they were paused."""
    socket = NoSocket()
    connection = Connection(Owner())
    connection.connection_made(socket)
    exchange = Exchange(connection, encode(httpx.Request("GET", "http://h/")), None)
    connection.begin(exchange)
    sending = asyncio.create_task(exchange.send(None))
    await asyncio.sleep(0)

    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 400000\r\n\r\n")
    connection.data_received(bytes(300_000))
    assert socket.is_paused
    connection.data_received(bytes(100_000))

    await sending
    assert not socket.is_paused
    assert sum([len(chunk) async for chunk in exchange]) == 400_000


async def one_answer(content: Any, unsent_bytes: int) -> tuple[NoSocket, Owner]:
    """What becomes of a connection after a response to a request with this body."""
    owner, socket = Owner(), NoSocket()
    connection = Connection(owner)
    connection.connection_made(socket)
    request = httpx.Request("POST", "http://h/", content=content)
    exchange = Exchange(connection, encode(request), None)
    connection.begin(exchange)
    sending = asyncio.create_task(exchange.send(None))
    await asyncio.sleep(0)
    socket.unsent_bytes = unsent_bytes
    connection.data_received(OK)
    await sending
    unwatched = weakref.ref(exchange)
    gc.disable()
    try:
        del exchange, sending
        assert unwatched() is None, "an exchange waits for the garbage collector"
    finally:
        gc.enable()
    return socket, owner


async def test_a_connection_is_kept_only_when_the_whole_request_is_sent() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0)

    socket, owner = await one_answer(b"{}", 0)
    assert owner.has_it
    assert not socket.is_aborted
    for content, unsent_bytes in ((b"{}", 1), (endless(), 0)):
        socket, owner = await one_answer(content, unsent_bytes)
        assert not owner.has_it
        assert socket.is_aborted


@settings(max_examples=80, deadline=None)
@given(wire=wires().filter(lambda wire: wire.is_reusable), more=st.binary(min_size=1, max_size=40))
def test_no_byte_after_a_response_is_kept(wire: Wire, more: bytes) -> None:
    result = asyncio.run(receive(wire.method, [wire.data + more], ends=False))

    assert result.error is None
    assert result.body == wire.body
    # The parser swallows line ends between responses, which say nothing.
    assert result.is_closed or not more.strip(b"\r\n")
