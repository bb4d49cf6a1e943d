"""Peers that break the rules, hang up or keep silent: which httpx exception says so, and when."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.contract.transport.conftest import Make, Start
from tests.contract.transport.peers import (
    CHUNKED,
    LAST_CHUNK,
    OK,
    Conversation,
    Script,
    answers,
    answers_once,
    eventually,
    fetch,
    http_chunk,
    make_request,
    read,
    with_length,
)

BROKEN = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
BIG = bytes(4 * 1024 * 1024)

NOT_A_RESPONSE = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "TLS": b"\x15\x03\x03\x00\x02\x02\x28",
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "only interim": b"HTTP/1.1 100 Continue\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "status of two digits": b"HTTP/1.1 20\r\ncontent-length: 0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!",
    "negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok",
    "endless length": b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\nok",
    "no colon": b"HTTP/1.1 200 OK\r\nwhat is this\r\ncontent-length: 2\r\n\r\nok",
    "NUL in a header": b"HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 2\r\n\r\nok",
    "huge header": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
    "endless header": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 5_000_000,
    "endless status line": b"HTTP/1.1 200 " + b"a" * 5_000_000,
    "huge head": b"HTTP/1.1 200 OK\r\n" + b"x: aaaaaaaaaaaaaa\r\n" * 5_000 + b"\r\n",
}


@pytest.mark.parametrize("wire", NOT_A_RESPONSE.values(), ids=NOT_A_RESPONSE.keys())
async def test_what_is_not_a_response_is_an_error(
    transport: httpx.AsyncBaseTransport, start: Start, wire: bytes
) -> None:
    peer = await start(answers_once(wire))

    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)

    await eventually(lambda: peer.open == 0, "the connection was kept")
    peer.script = answers(OK)
    assert await fetch(transport, peer.url) == (200, b"ok")
    assert len(peer.heads) == 2


CUT = {
    "length": with_length(b"hello")[:-1],
    "chunk": CHUNKED + b"5\r\nhell",
    "between chunks": CHUNKED + http_chunk(b"hell"),
    "last chunk": CHUNKED + http_chunk(b"hell") + b"0\r\n",
    "trailers": CHUNKED + http_chunk(b"hell") + b"0\r\nx: 1\r\n",
}


@pytest.mark.parametrize("wire", CUT.values(), ids=CUT.keys())
async def test_a_cut_body_gives_what_came_and_then_an_error(
    transport: httpx.AsyncBaseTransport, start: Start, wire: bytes
) -> None:
    peer = await start(answers_once(wire))
    response = await transport.handle_async_request(make_request(peer.url))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    got = bytearray()

    with pytest.raises(BROKEN):  # noqa: PT012
        async for chunk in response.stream:
            got += chunk

    await response.aclose()
    assert got == b"hell"
    assert len(peer.heads) == 1


BROKEN_BODIES = {
    "size is no number": CHUNKED + http_chunk(b"hell") + b"xyz\r\n",
    "size is negative": CHUNKED + b"-5\r\nhello\r\n",
    "size is too large": CHUNKED + b"fffffffffffffffffffff\r\nhello",
    "chunk too long": CHUNKED + b"2\r\nhello\r\n" + LAST_CHUNK,
}


@pytest.mark.parametrize("wire", BROKEN_BODIES.values(), ids=BROKEN_BODIES.keys())
async def test_broken_framing_is_an_error(
    transport: httpx.AsyncBaseTransport, start: Start, wire: bytes
) -> None:
    peer = await start(answers_once(wire))

    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)

    await eventually(lambda: peer.open == 0, "the connection was kept")


async def test_a_reset_is_an_error_before_and_in_a_response(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        if c.number == 2:
            await c.send(CHUNKED, http_chunk(b"one"))
            await c.reader.read(1)  # until the test has read the chunk; it sends no more
        c.reset()

    peer = await start(script)
    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)
    response = await transport.handle_async_request(make_request(peer.url))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    body = aiter(response.stream)
    assert await anext(body) == b"one"
    await peer.aclose()
    with pytest.raises(BROKEN):
        await anext(body)
    await response.aclose()


async def test_a_reset_is_no_end_of_a_body_without_a_length(
    transport: httpx.AsyncBaseTransport, start: Start, kind: str
) -> None:
    seen = asyncio.Event()

    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await seen.wait()
        c.reset()

    peer = await start(script)
    response = await transport.handle_async_request(make_request(peer.url))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    body = aiter(response.stream)
    assert await anext(body) == b"hello"
    seen.set()

    # aiohttp takes it for a regular end.
    with pytest.raises(StopAsyncIteration if kind == "aiohttp" else BROKEN):
        await anext(body)
    await response.aclose()


async def test_many_headers_are_too_many(transport: httpx.AsyncBaseTransport, start: Start) -> None:
    peer = await start(answers(with_length(b"ok", *[b"x%d: 1" % i for i in range(300)])))

    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)


async def test_a_length_and_chunks_are_one_too_many(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n"
    peer = await start(answers_once(head + http_chunk(b"ok") + LAST_CHUNK))

    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)


async def test_endless_interim_responses_end(
    transport: httpx.AsyncBaseTransport, start: Start, kind: str
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        while True:
            await c.send(b"HTTP/1.1 102 Processing\r\nx: aaaaaaaaaaaaaaaaaaaa\r\n\r\n" * 100)

    peer = await start(script)

    if kind == "aiohttp":  # skips them for ever
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await fetch(transport, peer.url)
    else:
        with pytest.raises(httpx.RemoteProtocolError):
            await fetch(transport, peer.url)


async def test_nobody_asked_to_switch_protocols(
    transport: httpx.AsyncBaseTransport, start: Start, kind: str
) -> None:
    wire = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nxyz"
    peer = await start(answers_once(wire))

    if kind == "aiohttp":  # hands it on as an answer
        assert (await fetch(transport, peer.url))[0] == 101
    else:
        with pytest.raises(httpx.RemoteProtocolError):
            await fetch(transport, peer.url)


async def test_endless_trailers_end(
    transport: httpx.AsyncBaseTransport, start: Start, kind: str
) -> None:
    peer = await start(
        answers_once(CHUNKED + http_chunk(b"hell") + b"0\r\nx: ", *[b"a" * 60_000] * 20)
    )

    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)


async def test_a_half_closed_peer_has_still_answered(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(OK)
        c.half_close()
        await c.wait_for_close()

    peer = await start(script)

    for _ in range(3):
        assert await fetch(transport, peer.url) == (200, b"ok")
        await eventually(lambda: peer.open == 0, "a connection without an answer was kept")
    assert peer.connections == 3


async def test_a_peer_that_half_closes_will_not_answer(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        c.half_close()
        await c.wait_for_close()

    peer = await start(script)

    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)
    await eventually(lambda: peer.open == 0, "it was waited for")


MORE = {
    "garbage": b"garbage",
    "OK": OK,
    "408": b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n",
}


def says_more(*parts: bytes) -> Script:
    """Say more than was asked for on the first connection, the rest a moment later."""

    async def script(c: Conversation) -> None:
        if c.number == 1:
            await c.request()
            for part in parts:
                await c.send(part)
                await asyncio.sleep(0.02)
            await c.wait_for_close()
        await answers(with_length(b"second"))(c)

    return script


@pytest.mark.parametrize("more", MORE.values(), ids=MORE.keys())
async def test_bytes_that_come_with_a_response_are_nobodys_answer(
    transport: httpx.AsyncBaseTransport, start: Start, more: bytes, kind: str
) -> None:
    peer = await start(says_more(OK + more))

    if kind == "aiohttp" and more == b"garbage":
        with pytest.raises(BROKEN):  # it fails the response that came before
            await fetch(transport, peer.url)
    else:
        assert await fetch(transport, peer.url) == (200, b"ok")

    await eventually(lambda: peer.open == 0, "the connection was kept")
    assert await fetch(transport, peer.url) == (200, b"second")


@pytest.mark.parametrize("more", MORE.values(), ids=MORE.keys())
async def test_bytes_that_come_after_a_response_are_nobodys_answer(
    transport: httpx.AsyncBaseTransport, start: Start, more: bytes, kind: str
) -> None:
    peer = await start(says_more(OK, more))

    assert await fetch(transport, peer.url) == (200, b"ok")
    await asyncio.sleep(0.1)

    answer = await fetch(transport, peer.url)
    if kind == "aiohttp" and more != b"garbage":
        # It takes a whole response on an idle connection for the answer to its next request.
        assert answer in [(200, b"ok"), (408, b"")]
    else:
        assert answer == (200, b"second")


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "made"])
async def test_an_answer_that_comes_early_is_read_and_the_connection_closed(
    transport: httpx.AsyncBaseTransport, start: Start, is_known: bool
) -> None:
    # Given a peer that refuses a body without reading it
    async def script(c: Conversation) -> None:
        await c.head()
        await c.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nlarge")
        await c.wait_for_close()  # what a peer should do, so that its answer can be read

    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield BIG[:65_536]

    peer = await start(script)

    # When, Then
    assert await fetch(transport, peer.url, BIG * 4 if is_known else parts()) == (413, b"large")
    await eventually(lambda: peer.open == 0, "the connection was kept")
    peer.script = answers(OK)
    assert await fetch(transport, peer.url) == (200, b"ok")


async def test_silence_is_a_read_timeout_where_one_is_set(
    transport: httpx.AsyncBaseTransport, start: Start, kind: str
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        if c.number == 2:
            await c.send(CHUNKED, http_chunk(b"one"))
        await c.wait_for_close()

    peer = await start(script)
    # aiohttp's are renamed like any other trouble with a connection.
    expected = BROKEN if kind == "aiohttp" else httpx.ReadTimeout

    with pytest.raises(expected):
        await transport.handle_async_request(make_request(peer.url, read=0.05))
    response = await transport.handle_async_request(make_request(peer.url, read=0.05))
    with pytest.raises(expected):
        await read(response)

    await eventually(lambda: peer.open == 0, "the connection was kept")


async def test_a_peer_that_takes_nothing_is_a_write_timeout(
    transport: httpx.AsyncBaseTransport, start: Start, kind: str
) -> None:
    taken = asyncio.Event()

    async def script(c: Conversation) -> None:
        c.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await taken.wait()

    peer = await start(script)
    request = make_request(peer.url, BIG * 8, write=0.1)

    if kind == "aiohttp":  # has no such timeout: its caller's own one has to end it
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await transport.handle_async_request(request)
    else:
        with pytest.raises(httpx.WriteTimeout):
            await transport.handle_async_request(request)


async def test_a_refused_connection_is_a_connect_error(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    peer = await start(answers(OK))
    await peer.aclose()

    with pytest.raises(httpx.ConnectError):
        await fetch(transport, peer.url)


async def test_an_unknown_name_is_a_connect_error(transport: httpx.AsyncBaseTransport) -> None:
    with pytest.raises(httpx.ConnectError):
        await fetch(transport, "http://nowhere.invalid/")


async def test_a_name_that_cannot_be_one_is_a_connect_error(
    transport: httpx.AsyncBaseTransport, kind: str
) -> None:
    # aiohttp says it with an exception that is not httpx's.
    with pytest.raises(UnicodeError if kind == "aiohttp" else httpx.ConnectError):
        await fetch(transport, f"http://{'a' * 64}.example/")


async def test_a_name_is_resolved(transport: httpx.AsyncBaseTransport, start: Start) -> None:
    peer = await start(answers(OK))

    assert await fetch(transport, peer.url.replace("127.0.0.1", "localhost")) == (200, b"ok")


async def test_another_scheme_is_unsupported(
    transport: httpx.AsyncBaseTransport, kind: str
) -> None:
    # aiohttp's complaint is renamed like trouble with a connection.
    with pytest.raises(BROKEN if kind == "aiohttp" else httpx.UnsupportedProtocol):
        await fetch(transport, "ftp://127.0.0.1/")


@pytest.fixture
def deaf_port(nothing_left: None) -> Iterator[int]:
    """A port that neither accepts nor refuses: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        queued = [socket.socket() for _ in range(2)]
        for each in queued:
            each.setblocking(False)
            each.connect_ex(address)
        yield address[1]
        for each in queued:
            each.close()


async def test_a_connection_that_does_not_come_is_a_connect_timeout(
    transport: httpx.AsyncBaseTransport, deaf_port: int
) -> None:
    with pytest.raises(httpx.ConnectTimeout):
        await fetch(transport, f"http://127.0.0.1:{deaf_port}/", connect=0.1)


async def test_a_handshake_that_does_not_come_is_a_connect_timeout(
    make: Make, start: Start, plain_context: ssl.SSLContext
) -> None:
    async def script(c: Conversation) -> None:
        await c.wait_for_close()

    peer = await start(script)

    with pytest.raises(httpx.ConnectTimeout):
        await fetch(
            make(ssl_context=plain_context),
            peer.url.replace("http:", "https:"),
            connect=0.1,
        )
    await eventually(lambda: peer.open == 0, "the connection was kept")


@pytest.mark.parametrize(
    "value", ["a\r\nx-evil: 1", "a\nb", "a\rb", "a\0b"], ids=["CRLF", "LF", "CR", "NUL"]
)
async def test_no_header_can_become_two(
    transport: httpx.AsyncBaseTransport, start: Start, value: str, kind: str
) -> None:
    peer = await start(answers(OK))

    # aiohttp says it with an exception that is not httpx's.
    with pytest.raises(ValueError if kind == "aiohttp" else httpx.LocalProtocolError):
        await fetch(transport, peer.url, headers={"x": value})
    assert peer.heads == []
