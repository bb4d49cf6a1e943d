"""What a response is, in every way that HTTP/1.1 has to say it; and requests of every size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.contract.transport.conftest import Start
from tests.contract.transport.peers import (
    CHUNKED,
    LAST_CHUNK,
    OK,
    PATIENCE_S,
    Conversation,
    answers,
    answers_once,
    echoes,
    eventually,
    fetch,
    http_chunk,
    make_request,
    read,
    with_length,
)

BIG = bytes(range(256)) * 32_768  # 8 MiB


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (with_length(b"hello"), b"hello"),
        (with_length(b""), b""),
        (CHUNKED + http_chunk(b"hel") + http_chunk(b"lo") + LAST_CHUNK, b"hello"),
        (CHUNKED + LAST_CHUNK, b""),
        (CHUNKED + b"3;name=value\r\nhel\r\n2\r\nlo\r\n0\r\nx-trailer: 1\r\n\r\n", b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + with_length(b"hello"), b"hello"),
        (
            b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
            + with_length(b"hello"),
            b"hello",
        ),
    ],
    ids=["length", "empty", "chunks", "no-chunks", "extension-trailer", "100", "103-102"],
)
async def test_a_framed_body_is_read_and_its_connection_reused(
    transport: httpx.AsyncBaseTransport, start: Start, wire: bytes, body: bytes
) -> None:
    peer = await start(answers(wire))

    for _ in range(3):
        assert await fetch(transport, peer.url) == (200, body)

    assert peer.connections == 1


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\n",
    ],
    ids=["no-length", "close", "1.0", "close-with-length"],
)
async def test_a_body_may_end_with_its_connection(
    transport: httpx.AsyncBaseTransport, start: Start, head: bytes
) -> None:
    peer = await start(answers_once(head, b"hello", b"world"))

    assert await fetch(transport, peer.url) == (200, b"helloworld")
    assert await fetch(transport, peer.url) == (200, b"helloworld")
    assert peer.connections == 2


@pytest.mark.parametrize(
    ("method", "wire"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"),
    ],
    ids=["HEAD", "204", "304"],
)
async def test_some_responses_have_no_body_whatever_their_headers_say(
    transport: httpx.AsyncBaseTransport, start: Start, method: str, wire: bytes
) -> None:
    peer = await start(answers(wire))

    for _ in range(2):
        assert (await fetch(transport, peer.url, None, method=method))[1] == b""

    assert peer.connections == 1


async def test_bytes_come_as_they_are_sent(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    # Given a peer that sends each part only after the one before was seen
    seen = asyncio.Semaphore(0)

    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(CHUNKED)
        for part in (b"one", b"two", b"three"):
            await seen.acquire()
            await c.send(http_chunk(part))
        await seen.acquire()
        await c.send(LAST_CHUNK)

    peer = await start(script)

    # When
    async with asyncio.timeout(PATIENCE_S):
        response = await transport.handle_async_request(make_request(peer.url))
        parts = []
        seen.release()
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for part in response.stream:
            parts.append(part)
            seen.release()
        await response.aclose()

    # Then
    assert parts == [b"one", b"two", b"three"]


async def test_headers_come_as_they_were_sent(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    peer = await start(
        answers(with_length(b"", b"X-One: 1", b"set-cookie: a=1", b"Set-Cookie: b=2", b"x: \xe9"))
    )

    response = await transport.handle_async_request(make_request(peer.url))
    await read(response)

    assert response.headers.raw[1:] == [
        (b"X-One", b"1"),
        (b"set-cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"x", b"\xe9"),
    ]
    assert response.headers["x"] == "é"
    # No cookie is kept.
    await fetch(transport, peer.url)
    assert b"cookie" not in peer.heads[1][1].lower()


async def test_a_redirect_is_an_answer_like_any_other(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    peer = await start(
        answers(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n")
    )

    assert await fetch(transport, peer.url) == (307, b"")
    assert len(peer.heads) == 1


async def test_a_compressed_body_stays_compressed(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    peer = await start(answers(with_length(b"\x1f\x8b not really", b"content-encoding: gzip")))

    assert (await fetch(transport, peer.url))[1] == b"\x1f\x8b not really"


async def test_only_aiohttp_goes_through_the_environments_proxy(
    kind: str,
    transport: httpx.AsyncBaseTransport,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer, proxy = await start(answers(OK)), await start(answers(OK))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)

    assert await fetch(transport, peer.url) == (200, b"ok")

    asked = proxy if kind == "aiohttp" else peer
    assert len(asked.heads) == 1
    assert len(peer.heads) + len(proxy.heads) == 1


async def test_a_request_is_sent_as_it_is(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    peer = await start(answers(OK))
    headers = {"authorization": "Bearer k", "accept-encoding": "identity", "x-Mixed": "a b"}

    await fetch(transport, peer.url + "?a=b%20c", b"{}", headers=headers)

    lines = peer.heads[0][1].split(b"\r\n")
    assert lines[0] == b"POST /v1/x?a=b%20c HTTP/1.1"
    assert {line.lower() for line in lines[1:] if line} >= {
        b"host: 127.0.0.1:%d" % peer.port,
        b"authorization: bearer k",
        b"accept-encoding: identity",
        b"x-mixed: a b",
        b"content-length: 2",
    }


@pytest.mark.parametrize("size", [0, 1, 65_536, len(BIG)])
async def test_a_body_of_any_size_goes_both_ways(
    transport: httpx.AsyncBaseTransport, start: Start, size: int
) -> None:
    peer = await start(echoes)

    for _ in range(2):
        assert await fetch(transport, peer.url, BIG[:size]) == (200, BIG[:size])

    assert peer.connections == 1


@pytest.mark.parametrize("headers", [{}, {"content-length": "8388608"}], ids=["chunks", "length"])
async def test_a_body_may_be_made_while_it_is_sent(
    transport: httpx.AsyncBaseTransport, start: Start, headers: dict[str, str]
) -> None:
    peer = await start(echoes)

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(BIG), 262_144):
            yield BIG[at : at + 262_144]
            await asyncio.sleep(0)

    for _ in range(2):
        assert await fetch(transport, peer.url, parts(), headers=headers) == (200, BIG)

    assert peer.connections == 1


async def test_a_slow_reader_makes_the_peer_wait(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    # Given a peer that sends as much as is taken
    total, sent = 64 * 1024 * 1024, 0

    async def script(c: Conversation) -> None:
        nonlocal sent
        await c.request()
        await c.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            await c.send(BIG[:65_536])
            sent += 65_536

    peer = await start(script)
    response = await transport.handle_async_request(make_request(peer.url))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    body = aiter(response.stream)

    # When the reader takes its time
    got = len(await anext(body))
    await asyncio.sleep(0.2)

    # Then the peer had to stop, and goes on when the reader does
    assert sent < total / 2
    async for chunk in body:
        got += len(chunk)
    await response.aclose()
    assert got == total


async def test_a_peer_that_reads_slowly_gets_it_all(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    async def script(c: Conversation) -> None:
        await c.head()
        size = 0
        while size < len(BIG):
            size += len(await c.reader.read(262_144))
            await asyncio.sleep(0.001)
        await c.send(with_length(b"%d" % size))

    peer = await start(script)

    assert await fetch(transport, peer.url, BIG) == (200, b"%d" % len(BIG))


async def test_a_peer_that_dribbles_is_understood(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    wire = CHUNKED + http_chunk(b"hello") + LAST_CHUNK

    async def script(c: Conversation) -> None:
        while True:
            await c.request()
            for at in range(len(wire)):
                await c.send(wire[at : at + 1])
                await asyncio.sleep(0.001)

    peer = await start(script)

    assert await fetch(transport, peer.url) == (200, b"hello")
    assert await fetch(transport, peer.url) == (200, b"hello")
    assert peer.connections == 1


async def test_closing_a_response_early_closes_its_connection(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(CHUNKED, http_chunk(b"one"))
        await c.wait_for_close()

    peer = await start(script)
    response = await transport.handle_async_request(make_request(peer.url))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    assert await anext(aiter(response.stream)) == b"one"

    await response.aclose()

    await eventually(lambda: peer.open == 0, "the peer did not see it")


async def test_closing_a_response_that_has_come_whole_keeps_its_connection(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    peer = await start(answers(with_length(b"x" * 10)))

    for _ in range(3):
        response = await transport.handle_async_request(make_request(peer.url))
        await response.aclose()

    assert peer.connections == 1


async def test_closing_the_transport_closes_what_is_busy_and_what_is_idle(
    transport: httpx.AsyncBaseTransport, start: Start, kind: str
) -> None:
    async def script(c: Conversation) -> None:
        if c.number > 1:
            await answers(OK)(c)
        await c.request()
        await c.send(CHUNKED, http_chunk(b"one"))
        await c.wait_for_close()

    peer = await start(script)
    busy = await transport.handle_async_request(make_request(peer.url))
    await fetch(transport, peer.url)

    await transport.aclose()

    await eventually(lambda: peer.open == 0, "the peer did not see it")
    # aiohttp says it with an exception that is not httpx's.
    with pytest.raises(RuntimeError if kind == "aiohttp" else httpx.ReadError):
        await read(busy)
