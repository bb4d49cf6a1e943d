"""The real transport against a scripted server on a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from msgspec.structs import replace

from gateway.core.outcome import Outcome
from gateway.core.route import Route
from gateway.dispatch import aiohttp_transport
from gateway.dispatch.aiohttp_transport import make_aiohttp_transport
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.kinds import Kind
from gateway.dispatch.send import Dispatcher
from tests.unit.dispatch.upstream_doubles import (
    USAGE,
    Handler,
    RawServer,
    delta,
    make_chat,
    sse,
)

Start = Callable[[Handler], Awaitable[RawServer]]
STREAM = make_chat(stream=True)
WIRE = sse(delta("Hello"), delta(finish="stop"), USAGE)
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
ANSWER = json.dumps(
    {"model": "theirs", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
).encode()


@pytest.fixture
async def transport() -> AsyncIterator[httpx.AsyncBaseTransport]:
    made = make_aiohttp_transport()
    yield made
    await made.aclose()


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def sends(*parts: bytes | float) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                writer.write(part)
                await writer.drain()

    return handle


def then_cuts(*parts: bytes) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.writelines(parts)
        await writer.drain()
        writer.close()

    return handle


def to(server: RawServer, route: Route) -> Route:
    return replace(route, base_url=f"http://127.0.0.1:{server.port}")


async def read_stream(transport: httpx.AsyncBaseTransport, route: Route) -> list[bytes]:
    frames = []
    async with Dispatcher({"http1": transport}).open_stream(
        route, STREAM, request_id="r"
    ) as stream:
        async for frame in stream:
            frames.append(frame.data)
    return [event + b"\n\n" for event in b"".join(frames).split(b"\n\n")[:-1]]


async def failure(transport: httpx.AsyncBaseTransport, route: Route) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as failed:
        await read_stream(transport, route)
    return failed.value


async def test_a_refused_connection_was_none(
    transport: httpx.AsyncBaseTransport, route: Route
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        failed = await failure(transport, replace(route, base_url=f"http://127.0.0.1:{port}"))

    assert (failed.kind, failed.outcome) == (Kind.CONNECT, Outcome.CONNECT)


async def test_an_unknown_name_is_no_connection(
    transport: httpx.AsyncBaseTransport, route: Route
) -> None:
    failed = await failure(transport, route)

    assert (failed.kind, failed.outcome) == (Kind.CONNECT, Outcome.CONNECT)


async def test_tls_to_a_plain_port_is_no_connection(
    transport: httpx.AsyncBaseTransport, route: Route
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    failed = await failure(transport, replace(route, base_url=f"https://127.0.0.1:{port}"))
    server.close()

    assert (failed.kind, failed.outcome) == (Kind.CONNECT, Outcome.CONNECT)


async def test_a_handshake_that_never_ends_is_no_connection(
    transport: httpx.AsyncBaseTransport, route: Route
) -> None:
    held = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    impatient = replace(
        route,
        base_url=f"https://127.0.0.1:{port}",
        timeouts=replace(route.timeouts, connect=0.1),
    )

    failed = await failure(transport, impatient)
    server.close()
    for writer in held:
        writer.close()

    assert (failed.kind, failed.error_type) == (Kind.CONNECT, "ConnectTimeout")


async def test_a_connection_lost_before_the_headers_is_broken_not_unreached(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start
) -> None:
    server = await start_server(then_cuts())

    failed = await failure(transport, to(server, route))

    assert (failed.kind, failed.outcome) == (Kind.BROKEN, Outcome.FAILURE)


@pytest.mark.parametrize(
    "parts",
    [
        (b"nonsense\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",),
        (SSE_HEAD, http_chunk(sse(delta("x"), done=False))),
        (SSE_HEAD, http_chunk(sse(delta("x"), done=False)), b"zz\r\n"),
        (SSE_HEAD.replace(b"transfer-encoding: chunked", b"content-length: 900"), b"data: {}\n\n"),
    ],
    ids=["status line", "header", "cut", "chunk size", "short"],
)
async def test_a_damaged_response_is_broken(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start, parts: tuple[bytes, ...]
) -> None:
    server = await start_server(then_cuts(*parts))

    failed = await failure(transport, to(server, route))

    assert (failed.kind, failed.outcome) == (Kind.BROKEN, Outcome.FAILURE)


async def test_silence_after_the_headers_is_a_timeout(
    transport: httpx.AsyncBaseTransport, with_timeouts: Callable[..., Route], start_server: Start
) -> None:
    server = await start_server(sends(SSE_HEAD))

    failed = await failure(transport, to(server, with_timeouts(first_byte=0.1)))

    assert (failed.kind, failed.error_type) == (Kind.TIMEOUT, "first_output_timeout")
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_a_slow_first_token_is_waited_for(
    transport: httpx.AsyncBaseTransport, with_timeouts: Callable[..., Route], start_server: Start
) -> None:
    end = http_chunk(b"")
    server = await start_server(
        sends(SSE_HEAD, http_chunk(b": ping\n\n"), 0.2, http_chunk(WIRE), end)
    )

    frames = await read_stream(transport, to(server, with_timeouts(first_byte=5, idle=0.1)))

    assert len(frames) == 2


async def test_a_body_with_a_length_is_read(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    server = await start_server(sends(head % len(ANSWER), ANSWER))

    completion = await Dispatcher({"http1": transport}).complete(
        to(server, route), make_chat(), request_id="r"
    )

    assert json.loads(completion.body)["model"] == "public"


async def test_a_body_ended_by_the_close_is_read(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    server = await start_server(then_cuts(head, WIRE))

    assert len(await read_stream(transport, to(server, route))) == 2


async def test_the_connection_is_reused_after_complete_answers(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start
) -> None:
    server = await start_server(sends(SSE_HEAD, http_chunk(WIRE), 0.01, http_chunk(b"")))

    for _ in range(3):
        await read_stream(transport, to(server, route))

    assert server.connections == 1


async def test_the_connection_is_closed_after_a_cancellation(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start
) -> None:
    server = await start_server(sends(SSE_HEAD, http_chunk(sse(delta("x"), done=False))))
    task = asyncio.create_task(read_stream(transport, to(server, route)))
    await asyncio.sleep(0.1)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_the_connection_is_closed_after_a_cancellation_before_the_headers(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start
) -> None:
    server = await start_server(sends())
    task = asyncio.create_task(read_stream(transport, to(server, route)))
    await asyncio.sleep(0.1)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_nothing_is_sent_that_was_not_given(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start
) -> None:
    head = SSE_HEAD.replace(b"\r\n\r\n", b"\r\nset-cookie: a=b; path=/\r\n\r\n")
    server = await start_server(sends(head, http_chunk(WIRE), http_chunk(b"")))

    for _ in range(2):
        await read_stream(transport, to(server, route))

    heads = [request.split(b"\r\n\r\n")[0].split(b"\r\n") for request in server.requests]
    assert heads[0][0] == b"POST /v1/chat/completions HTTP/1.1"
    assert heads[0] == heads[1]
    assert {line.split(b":")[0].lower() for line in heads[1][1:]} == {
        b"host",
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"content-length",
        b"content-type",
        b"user-agent",
        b"x-request-id",
    }


async def test_a_redirect_is_not_followed(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start
) -> None:
    server = await start_server(
        sends(b"HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
    )

    failed = await failure(transport, to(server, route))

    assert (failed.kind, failed.status) == (Kind.STATUS, 307)


async def test_a_large_request_is_sent(
    transport: httpx.AsyncBaseTransport, route: Route, start_server: Start
) -> None:
    server = await start_server(sends(SSE_HEAD, http_chunk(WIRE), http_chunk(b"")))
    chat = make_chat(stream=True, messages=[{"role": "user", "content": "x" * (2 << 20)}])

    async with Dispatcher({"http1": transport}).open_stream(
        to(server, route), chat, request_id="r"
    ) as stream:
        async for _ in stream:
            pass

    assert len(server.requests[0]) > 2 << 20


async def test_a_close_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp_transport, "CLOSE_TIMEOUT_S", 0.05)

    class Hanging(httpx.AsyncByteStream):
        async def aclose(self) -> None:
            await asyncio.Event().wait()

    async with asyncio.timeout(5):
        await aiohttp_transport._Body(Hanging()).aclose()
