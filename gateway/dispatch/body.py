"""Read and close response bodies, bounded in size and time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
ERROR_TIMEOUT_S = 5.0


class AnswerTooLarge(ValueError):
    """The body is longer than MAX_ANSWER_BYTES."""


def chunks_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises httpx.HTTPError.

    We ask for no compression; an upstream that compresses all the same is understood.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        return response.aiter_bytes()
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return aiter(response.stream)


async def read_answer(response: httpx.Response) -> bytes:
    """The whole body, however long it takes. Raises httpx.HTTPError or AnswerTooLarge."""
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks_of(response):
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise AnswerTooLarge(f"more than {MAX_ANSWER_BYTES} bytes")
        parts.append(chunk)
    return b"".join(parts)


async def read_error_body(response: httpx.Response) -> bytes:
    """As much of an error's body as comes within the bounds. A cut or a silence ends it."""
    body = bytearray()
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(ERROR_TIMEOUT_S):
            async for chunk in chunks_of(response):
                body += chunk
                if len(body) >= MAX_ERROR_BYTES:
                    break
    return bytes(body[:MAX_ERROR_BYTES])


async def close(response: httpx.Response) -> None:
    """Give up the connection: back to the pool after a complete body, else closed at once.

    Never fails, for the answer or the error is known by now.
    """
    assert isinstance(response.stream, httpx.AsyncByteStream)
    with contextlib.suppress(httpx.HTTPError):
        await response.stream.aclose()
