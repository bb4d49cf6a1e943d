"""The other transport, `transport: aiohttp`: httpx-aiohttp on a session of our own.

It is for routes behind a proxy: unlike our own transport it goes through what HTTPS_PROXY and the
like name. Otherwise it sends what it is given: no cookies, no redirects, no retry of a POST, no
limit on connections, no body timeout (the caller holds those, see `send` and `stream`). It costs
a multiple of our own, and hands a late response that nobody asked for to the next request.

httpx-aiohttp reports every lost connection as a connect timeout, whatever had been sent by then.
Whether a byte was sent decides how a failure counts, so the exceptions are named anew here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import aiohttp
import httpx
from aiohttp.http_exceptions import HttpProcessingError
from httpx_aiohttp import AiohttpTransport

from gateway.dispatch.http1 import KEEPALIVE_S

CLOSE_TIMEOUT_S = 2.0
_SLICE_BYTES = 256 * 1024
"""aiohttp warns of bodies above 1 MiB in one piece, for writing them holds up the event loop."""


def make_aiohttp_transport(
    *, keepalive_s: float = KEEPALIVE_S, ssl_context: ssl.SSLContext | None = None
) -> httpx.AsyncBaseTransport:
    """Make a transport with its own connection pool. Needs a running event loop.

    Of a request's `timeout` extension it obeys `connect` (one address, TLS included) and `pool`
    (the whole way to a connection, name resolution included), in seconds. The caller owns it and
    closes it with `aclose`. Without `ssl_context` it trusts certifi's authorities.
    """
    context = ssl_context or httpx.create_ssl_context(trust_env=False)
    connector = aiohttp.TCPConnector(
        limit=0, limit_per_host=0, keepalive_timeout=keepalive_s, ssl=context
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=True,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(),
    )
    return _Transport(client=session, verify=context)


class _Transport(AiohttpTransport):
    """AiohttpTransport with true exceptions."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response with the body unread."""
        if isinstance(request.stream, httpx.ByteStream) and len(request.read()) > _SLICE_BYTES:
            request = _in_slices(request)
        try:
            response = await super().handle_async_request(request)
        except (httpx.HTTPError, aiohttp.ClientError) as error:
            raise _true_name(error) from error
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Body(response.stream)
        return response


class _Slices(httpx.AsyncByteStream):
    """A request body in parts, between which other tasks run."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._content), _SLICE_BYTES):
            yield self._content[start : start + _SLICE_BYTES]


class _Body(httpx.AsyncByteStream):
    """A response body whose reading fails with httpx exceptions only."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except (httpx.HTTPError, aiohttp.ClientError, HttpProcessingError) as error:
            raise httpx.ReadError(str(error)) from error

    async def aclose(self) -> None:
        """Give the connection back when the body was read to its end, else close it."""
        with contextlib.suppress(TimeoutError):  # it waits for an upload that may hang
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._stream.aclose()


def _in_slices(request: httpx.Request) -> httpx.Request:
    """The same request, its length still announced, with its body not written in one go."""
    return httpx.Request(
        request.method,
        request.url,
        headers=request.headers,
        stream=_Slices(request.content),
        extensions=request.extensions,
    )


def _true_name(error: httpx.HTTPError | aiohttp.ClientError) -> httpx.HTTPError:
    """The httpx exception that says when in a request the error struck."""
    cause = error.__cause__ if isinstance(error, httpx.HTTPError) else error
    match cause:
        case aiohttp.ConnectionTimeoutError():
            return httpx.ConnectTimeout(str(cause))
        case aiohttp.ClientConnectorError() | aiohttp.InvalidURL():
            return httpx.ConnectError(str(cause))
        case aiohttp.ClientError():
            return httpx.RemoteProtocolError(str(cause) or type(cause).__name__)
        case _:
            assert isinstance(error, httpx.HTTPError)
            return error
