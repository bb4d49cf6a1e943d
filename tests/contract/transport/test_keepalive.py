"""Connections used again: when, how often, and what happens when the peer hangs up meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from gateway.dispatch.http1 import Http1Transport
from tests.contract.transport.certificates import Certificates
from tests.contract.transport.conftest import Make, Start
from tests.contract.transport.peers import (
    CHUNKED,
    LAST_CHUNK,
    OK,
    Conversation,
    Peer,
    answers,
    answers_once,
    echoes,
    eventually,
    fetch,
    http_chunk,
    make_request,
    open_sockets,
    read,
    with_length,
)

BROKEN = (httpx.RemoteProtocolError, httpx.ReadError)
MakeHttp1 = Callable[..., Http1Transport]


async def test_one_connection_is_used_two_thousand_times(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    peer = await start(answers(CHUNKED + http_chunk(b"ok") + LAST_CHUNK))
    await fetch(transport, peer.url)
    before = open_sockets()

    for _ in range(1_999):
        response = await transport.handle_async_request(make_request(peer.url))
        assert await read(response) == b"ok"

    assert peer.connections == 1
    assert len(peer.heads) == 2_000
    assert open_sockets() == before


async def test_as_many_connections_as_needed_and_no_more(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    # Given a peer that answers when a hundred have asked
    all_here = asyncio.Event()

    async def script(c: Conversation) -> None:
        while True:
            body = await c.request()
            if len(peer.heads) == 100:
                all_here.set()
            await all_here.wait()
            await c.send(with_length(body))

    peer = await start(script)

    # When
    bodies = [b"%d" % i for i in range(100)]
    answers = await asyncio.gather(*(fetch(transport, peer.url, body) for body in bodies))

    # Then
    assert answers == [(200, body) for body in bodies]
    assert peer.connections == 100
    answers = await asyncio.gather(*(fetch(transport, peer.url, body) for body in bodies))
    assert answers == [(200, body) for body in bodies]
    assert peer.connections == 100


async def test_idle_connections_are_closed_in_time(
    make: Make, start: Start, plain_context: object
) -> None:
    transport = make(keepalive_s=0.1, ssl_context=plain_context)
    peer = await start(answers(OK))
    await fetch(transport, peer.url)
    await fetch(transport, peer.url)
    assert peer.connections == 1

    await eventually(lambda: peer.open == 0, "the idle connection was kept")

    assert await fetch(transport, peer.url) == (200, b"ok")
    assert peer.connections == 2


@pytest.mark.parametrize("says", [b"connection: close", b"Connection: Keep-Alive, Close"])
async def test_a_peer_may_ask_for_the_end_of_a_connection(
    transport: httpx.AsyncBaseTransport, start: Start, says: bytes
) -> None:
    peer = await start(answers(b"HTTP/1.1 200 OK\r\n%s\r\ncontent-length: 2\r\n\r\nok" % says))

    for _ in range(2):
        assert await fetch(transport, peer.url) == (200, b"ok")

    assert peer.connections == 2
    await eventually(lambda: peer.open == 0, "a connection was kept")


async def test_a_request_may_ask_for_the_end_of_a_connection(
    transport: httpx.AsyncBaseTransport, start: Start, kind: str
) -> None:
    peer = await start(answers(OK))

    for _ in range(2):
        assert await fetch(transport, peer.url, headers={"connection": "close"}) == (200, b"ok")

    if kind == "aiohttp":  # leaves the closing to the peer
        assert peer.connections == 1
    else:
        assert peer.connections == 2
        await eventually(lambda: peer.open == 0, "a connection was kept")


async def test_a_peer_that_hangs_up_on_an_idle_connection_is_noticed(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    peer = await start(answers_once(OK))

    for _ in range(5):
        assert await fetch(transport, peer.url) == (200, b"ok")
        await eventually(lambda: peer.open == 0, "the connection was kept")
        await asyncio.sleep(0.02)

    assert peer.connections == 5


def hangs_up_on_the_second(last: bytes = b"", *, reset: bool = False) -> Peer:
    """A peer whose first connection takes a second request and ends with `last`."""

    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(OK)
        await c.request()
        if c.number > 1:
            await c.send(OK)
            return
        await c.send(last)
        if reset:
            c.reset()

    return Peer(script)


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_what_a_peer_has_been_sent_is_not_sent_again(
    transport: httpx.AsyncBaseTransport, start: Start, reset: bool
) -> None:
    """It may have begun a completion before it went, so that is the caller's to decide."""
    peer = await start(hangs_up_on_the_second(reset=reset).script)
    await fetch(transport, peer.url)

    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)

    assert [number for number, _ in peer.heads] == [1, 1]
    assert await fetch(transport, peer.url) == (200, b"ok")


@contextlib.contextmanager
def hanging_up_when_told(
    context: ssl.SSLContext | None,
) -> Iterator[tuple[str, Callable[[], None]]]:
    """A peer in a thread of its own, and what makes it hang up on the connections it has."""
    opened: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            opened.append(self.connection)
            self.rfile.read(int(self.headers["content-length"]))
            self.wfile.write(OK)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    def hang_up() -> None:
        for connection in opened:
            connection.shutdown(socket.SHUT_RDWR)
        opened.clear()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        scheme = "http" if context is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_port}/", hang_up
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_peer_that_hung_up_while_the_loop_was_busy_is_noticed_before_anything_is_written(
    make_http1: MakeHttp1, certificates: Certificates, tls: bool
) -> None:
    transport = make_http1(ssl_context=certificates.client())
    with hanging_up_when_told(certificates.server() if tls else None) as (url, hang_up):
        for _ in range(5):
            assert await fetch(transport, url) == (200, b"ok")
            assert transport.idle_count == 1
            hang_up()
        await transport.aclose()


async def test_what_a_new_connection_has_been_sent_is_not_sent_again(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()

    peer = await start(script)

    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)

    assert peer.connections == 1


@pytest.mark.parametrize("last", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", OK[:-1]])
async def test_what_was_begun_to_be_answered_is_not_sent_again(
    transport: httpx.AsyncBaseTransport, start: Start, last: bytes
) -> None:
    peer = await start(hangs_up_on_the_second(last).script)
    await fetch(transport, peer.url)

    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)

    assert len(peer.heads) == 2
    assert peer.connections == 1


async def test_what_we_gave_up_is_not_sent_again(
    make_http1: MakeHttp1, start: Start, plain_context: object
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(OK)
        await c.request()
        await c.wait_for_close()

    transport = make_http1(ssl_context=plain_context)
    peer = await start(script)
    await fetch(transport, peer.url)

    with pytest.raises(httpx.ReadTimeout):
        await fetch(transport, peer.url, read=0.05)

    assert len(peer.heads) == 2


async def test_a_peer_that_is_gone_is_no_connect_error_once_it_has_been_sent_something(
    transport: httpx.AsyncBaseTransport, start: Start
) -> None:
    # Given a peer that stops listening before it hangs up
    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(OK)
        await c.request()
        peer.stop_listening()

    peer = await start(script)
    await fetch(transport, peer.url)

    # When, Then: bytes of the request have left
    with pytest.raises(BROKEN):
        await fetch(transport, peer.url)
    with pytest.raises(httpx.ConnectError):
        await fetch(transport, peer.url)


async def test_a_race_with_a_peer_that_hangs_up_ends_in_the_answer_or_as_a_broken_connection(
    make_http1: MakeHttp1, start: Start, plain_context: object
) -> None:
    """Requests around the moment when the peer closes idle connections, each sent once."""

    async def script(c: Conversation) -> None:
        patience_s = None  # for the first request, then little
        while True:
            try:
                async with asyncio.timeout(patience_s):
                    head = await c.head()
            except TimeoutError:
                return
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await c.reader.readexactly(size)
            taken.append(body)
            await c.send(with_length(body))
            patience_s = 0.01

    taken: list[bytes] = []
    transport = make_http1(ssl_context=plain_context)
    peer = await start(script)

    async def ask(name: int) -> int:
        lost = 0
        for turn in range(15):
            body = b"%d-%d" % (name, turn)
            try:
                assert await fetch(transport, peer.url, body) == (200, body)
            except BROKEN:
                lost += 1
            await asyncio.sleep(0.009 + (name * 15 + turn) % 20 / 10_000)
        return lost

    lost = sum(await asyncio.gather(*(ask(name) for name in range(20))))

    assert len(taken) == len(set(taken)) >= 300 - lost
    assert transport.open_count <= 20


async def test_a_limit_makes_requests_wait_in_order(
    make_http1: MakeHttp1, start: Start, plain_context: object
) -> None:
    transport = make_http1(ssl_context=plain_context, max_connections=2)
    most = 0
    order = []

    async def script(c: Conversation) -> None:
        nonlocal most
        while True:
            body = await c.request()
            order.append(int(body))
            most = max(most, c.peer.open)
            await asyncio.sleep(0.005)
            await c.send(with_length(body))

    peer = await start(script)
    bodies = [b"%d" % i for i in range(1, 21)]

    answers = await asyncio.gather(*(fetch(transport, peer.url, body) for body in bodies))

    assert answers == [(200, body) for body in bodies]
    # Two are on their way at a time, and may overtake each other.
    assert all(abs(place - name) <= 1 for place, name in enumerate(order, start=1))
    assert most == peer.connections == 2


async def test_a_limit_is_kept_while_connections_come_and_go(
    make_http1: MakeHttp1, start: Start, plain_context: object
) -> None:
    transport = make_http1(ssl_context=plain_context, max_connections=3)
    peer = await start(answers_once(OK))

    results = await asyncio.gather(*(fetch(transport, peer.url) for _ in range(50)))

    assert results == [(200, b"ok")] * 50
    assert transport.open_count <= 3


async def test_a_wait_for_a_place_ends(
    make_http1: MakeHttp1, start: Start, plain_context: object
) -> None:
    transport = make_http1(ssl_context=plain_context, max_connections=1)
    peer = await start(echoes)
    busy = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        yield b"a"
        await busy.wait()
        yield b"b"

    first = asyncio.create_task(fetch(transport, peer.url, parts()))
    await eventually(lambda: len(peer.heads) == 1, "it was not sent")

    # A timeout and a cancellation give up their places in line.
    with pytest.raises(httpx.PoolTimeout):
        await fetch(transport, peer.url, pool=0.05)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await fetch(transport, peer.url)
    waiting = asyncio.create_task(fetch(transport, peer.url, b"c"))
    busy.set()

    assert await first == (200, b"ab")
    assert await waiting == (200, b"c")
    assert peer.connections == 1


async def test_what_fails_to_connect_gives_back_its_place(
    make_http1: MakeHttp1, start: Start, plain_context: object
) -> None:
    transport = make_http1(ssl_context=plain_context, max_connections=1)
    peer = await start(answers(OK))
    peer.stop_listening()

    for _ in range(3):
        with pytest.raises(httpx.ConnectError):
            await fetch(transport, peer.url, pool=0.05)

    await peer.start()
    assert await fetch(transport, peer.url, pool=0.05) == (200, b"ok")


async def test_what_is_too_old_is_not_used_even_when_nobody_had_time_to_close_it(
    make_http1: MakeHttp1, start: Start, plain_context: object
) -> None:
    transport = make_http1(ssl_context=plain_context, keepalive_s=0.05)
    peer = await start(answers(OK))
    await fetch(transport, peer.url)

    time.sleep(0.1)  # noqa: ASYNC251 - the loop is to be late
    assert await fetch(transport, peer.url) == (200, b"ok")

    assert peer.connections == 2


async def test_the_last_used_is_used_first(
    make_http1: MakeHttp1, start: Start, plain_context: object
) -> None:
    transport = make_http1(ssl_context=plain_context)
    peer = await start(echoes)
    release = [asyncio.Event() for _ in range(3)]

    async def parts(event: asyncio.Event) -> AsyncIterator[bytes]:
        yield b"a"
        await event.wait()

    busy = []
    for number, event in enumerate(release, start=1):
        busy.append(asyncio.create_task(fetch(transport, peer.url, parts(event))))
        await eventually(lambda number=number: len(peer.heads) == number, "it was not sent")  # type: ignore[misc]
    for number in (2, 0, 1):
        release[number].set()
        await busy[number]

    await fetch(transport, peer.url)
    await fetch(transport, peer.url)

    assert [number for number, _ in peer.heads[3:]] == [2, 2]
    assert transport.idle_count == transport.open_count == 3


async def test_a_closed_transport_is_of_no_use(
    make_http1: MakeHttp1, start: Start, plain_context: object
) -> None:
    transport = make_http1(ssl_context=plain_context)
    peer = await start(answers(OK))
    await fetch(transport, peer.url)

    await transport.aclose()
    await transport.aclose()

    with pytest.raises(RuntimeError):
        await fetch(transport, peer.url)
    assert transport.open_count == transport.idle_count == 0
