"""What is not HTTP as we speak it is refused in our shape, and cheaply."""

from __future__ import annotations

import asyncio
import json

from tests.integration.conftest import Gateway


async def exchange(gateway: Gateway, *parts: bytes) -> bytes:
    """Send bytes and read until the peer closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.cluster.replicas[0].port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def refusal(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


async def test_garbage_is_refused_in_our_shape(gateway: Gateway) -> None:
    assert refusal(await exchange(gateway, b"\x00garbage\r\n\r\n")) == (400, "malformed_http")


async def test_two_lengths_are_refused_in_our_shape(gateway: Gateway) -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"
    assert refusal(await exchange(gateway, head)) == (400, "malformed_http")


async def test_a_head_that_does_not_end_is_cut_off(gateway: Gateway) -> None:
    endless = [b"GET / HTTP/1.1\r\nx: ", *[b"y" * 32_768] * 40]
    answer = await exchange(gateway, *endless)
    assert not answer or refusal(answer) == (431, "headers_too_large")


async def test_a_body_that_comes_with_its_head_is_not_counted(guarded_gateway: Gateway) -> None:
    body = b"x" * 200_000
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
        b"x-api-key: sk-alice-of-the-tests\r\ncontent-length: %d\r\n\r\n"
    )
    answer = await exchange(guarded_gateway, head % len(body) + body)
    assert refusal(answer) == (400, "invalid_request")


async def test_requests_after_one_another_are_counted_anew(gateway: Gateway) -> None:
    one = b"GET /livez HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 30_000 + b"\r\n%b\r\n"
    answer = await exchange(gateway, one % b"", one % b"", one % b"connection: close\r\n")
    assert answer.count(b"HTTP/1.1 200") == 3
