"""A request given up at any moment: its connection is closed, and nothing of it is met again."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from gateway.dispatch.http1 import Http1Transport
from gateway.dispatch.http1.exchange import Exchange
from gateway.dispatch.http1.request import encode
from gateway.dispatch.http1.transport import _exchange
from tests.contract.transport.certificates import Certificates
from tests.contract.transport.conftest import Make, Start
from tests.contract.transport.peers import (
    CHUNKED,
    LAST_CHUNK,
    Conversation,
    Peer,
    echoes,
    eventually,
    fetch,
    http_chunk,
    make_request,
    with_length,
)

BIG = bytes(1024 * 1024)


async def at_once(c: Conversation) -> None:
    await echoes(c)


async def in_steps(c: Conversation) -> None:
    """Echo with a pause before every piece of the answer."""
    while True:
        body = await c.request()
        for piece in (
            b"HTTP/1.1 100 Continue\r\n\r\n",
            CHUNKED[:20],
            CHUNKED[20:],
            *[http_chunk(body[at : at + 4]) for at in range(0, min(len(body), 12), 4)],
            LAST_CHUNK[:2],
            LAST_CHUNK[2:],
        ):
            await asyncio.sleep(0)
            await c.send(piece)


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def is_cut_after(task: asyncio.Task[tuple[int, bytes]], count: int) -> bool:
    """Cancel a task after so many steps of the loop; False if it was done by then."""
    await steps(count)
    if task.done():
        await task
        return False
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return True


async def check_is_clean(transport: httpx.AsyncBaseTransport, peer: Peer, body: bytes) -> None:
    """The next request gets its own answer, and no connection is left but idle ones."""
    assert await fetch(transport, peer.url, body) == (200, body)
    if isinstance(transport, Http1Transport):
        await eventually(
            lambda: peer.open == transport.open_count == transport.idle_count,
            "a connection was left that is not idle",
        )


@pytest.mark.parametrize("script", [at_once, in_steps], ids=["at-once", "in-steps"])
@pytest.mark.parametrize("is_used", [False, True], ids=["new", "used"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_a_request_may_be_cancelled_at_every_step(
    make: Make,
    start: Start,
    certificates: Certificates,
    script: Callable[[Conversation], object],
    is_used: bool,
    is_tls: bool,
) -> None:
    peer = await start(script, certificates.server() if is_tls else None)
    context = certificates.client()
    transport = make(ssl_context=context)
    done = count = 0
    while done < 3:
        # Given a transport with a used connection, or with none
        if is_used:
            await check_is_clean(transport, peer, b"before %d" % count)
        else:
            await transport.aclose()
            transport = make(ssl_context=context)

        # When
        task = asyncio.create_task(fetch(transport, peer.url, b"cancelled %d" % count))
        done += not await is_cut_after(task, count)

        # Then
        await check_is_clean(transport, peer, b"after %d" % count)
        count += 1
    assert count > 3


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "made"])
async def test_an_upload_may_be_cancelled_at_every_step(
    transport: httpx.AsyncBaseTransport, start: Start, is_known: bool
) -> None:
    async def script(c: Conversation) -> None:
        while True:
            await c.send(with_length(b"%d" % len(await c.request())))

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(BIG), 65_536):
            yield BIG[at : at + 65_536]
            await asyncio.sleep(0)

    peer = await start(script)
    for count in range(40):
        content = BIG if is_known else parts()
        task = asyncio.create_task(fetch(transport, peer.url, content))
        await is_cut_after(task, count)
        assert await fetch(transport, peer.url, b"abc") == (200, b"3")
        if isinstance(transport, Http1Transport):
            await eventually(
                lambda: peer.open == transport.open_count == transport.idle_count,
                "a connection was left that is not idle",
            )


async def test_the_peer_sees_the_end_of_a_request_that_is_given_up(
    transport: httpx.AsyncBaseTransport, start: Start, kind: str
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        if c.number == 2:
            await c.send(CHUNKED, http_chunk(b"one"))
        await c.wait_for_close()

    peer = await start(script)

    # While the head is waited for
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await transport.handle_async_request(make_request(peer.url))
    await eventually(lambda: peer.open == 0, "the peer did not see it")

    # While the body is waited for, even before the response is closed
    response = await transport.handle_async_request(make_request(peer.url))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    body = aiter(response.stream)
    assert await anext(body) == b"one"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(body)
    if kind == "aiohttp":  # closes only when told to
        await response.aclose()
    await eventually(lambda: peer.open == 0, "the peer did not see it")
    await response.aclose()


async def test_a_handshake_may_be_cancelled(
    make: Make, start: Start, plain_context: ssl.SSLContext
) -> None:
    async def script(c: Conversation) -> None:
        await c.wait_for_close()

    peer = await start(script)
    transport = make(ssl_context=plain_context)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await fetch(transport, peer.url.replace("http:", "https:"))

    await eventually(lambda: peer.open == 0, "the peer did not see it")


async def test_a_storm_of_cancellations_mixes_up_no_answers(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    # Given a peer that takes its time
    chance = random.Random(7)

    async def script(c: Conversation) -> None:
        while True:
            body = await c.request()
            await asyncio.sleep(chance.random() * 0.01)
            await c.send(CHUNKED, http_chunk(body[:3]))
            await asyncio.sleep(chance.random() * 0.01)
            await c.send(http_chunk(body[3:]), LAST_CHUNK)

    peer = await start(script)

    # When a thousand requests are made and many of them given up
    async def ask(body: bytes, patience_s: float | None) -> bool:
        try:
            async with asyncio.timeout(patience_s):
                status, answer = await fetch(transport, peer.url, body)
        except TimeoutError:
            return False
        assert (status, answer) == (200, body)
        return True

    async def client(name: int) -> list[bool]:
        patience_s = [chance.random() * 0.025 if n % 5 else None for n in range(50)]
        return [await ask(b"%d-%d" % (name, n), each) for n, each in enumerate(patience_s)]

    results = await asyncio.gather(*(client(name) for name in range(20)))

    # Then every answer was its own request's
    answered = sum(map(sum, results))
    assert 200 <= answered < 1_000
    await check_is_clean(transport, peer, b"after all")


async def test_a_request_given_up_as_its_answer_arrives_leaves_the_connection_to_the_next() -> None:
    # Given a request whose answer arrives whole, which hands its connection back
    class Wire:
        is_write_paused = False
        is_released = False

        def begin(self, exchange: Exchange) -> None:
            self.exchange = exchange

        def write(self, head: bytes, body: bytes = b"") -> None:
            pass

        def release(self, *, is_reusable: bool) -> None:
            self.is_released = is_reusable

        def abort(self) -> None:
            raise AssertionError("the connection may be another request's by now")

    wire = Wire()
    request = make_request("http://peer.invalid/")
    loop = asyncio.get_running_loop()
    exchange = Exchange(wire, encode(request), None, loop)  # type: ignore[arg-type]
    asking = asyncio.create_task(_exchange(wire, exchange, request, {}))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    exchange.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
    assert wire.is_released

    # When it is cancelled before it has seen any of it
    asking.cancel()

    # Then it does not touch the connection any more
    with pytest.raises(asyncio.CancelledError):
        await asking
