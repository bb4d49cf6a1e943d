"""The transport: a pool per origin. What has been written of a request is never sent again.

A completion costs, and whoever closed the connection may have begun one. A peer that hung up on an
idle connection is noticed before a request is written to it (`Pool.take`); one that does so while
the request is on its way makes that fail, and whether it goes elsewhere is the caller's to decide.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import httpx

from gateway.dispatch.http1.connection import Connection
from gateway.dispatch.http1.exchange import Exchange
from gateway.dispatch.http1.pool import Origin, Pool
from gateway.dispatch.http1.request import encode

KEEPALIVE_S = 4.0
"""How long an idle connection is kept. Below the 5 s after which uvicorn, and with it most
engines, hang up, so that a request does not meet a closing connection."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_NO_LIMITS: Mapping[str, float | None] = {}


class Http1Transport(httpx.AsyncBaseTransport):
    """HTTP/1.1 over connections of its own, for one event loop.

    Of a request's `timeout` extension it obeys, in seconds: `connect` (names, TCP and TLS),
    `read` and `write` (each wait for the peer) and `pool` (the wait for a place where there is a
    limit). Every failure is an httpx.TransportError; httpx.ConnectError, ConnectTimeout and
    PoolTimeout are those where nothing of the request has left, LocalProtocolError and
    UnsupportedProtocol those where it never can.

    A response's body is its bytes as they come, compressed or not. Closing a response before it
    has come whole closes its connection. A body must be read by one task, and be read to its end
    or closed. The caller owns the transport and closes it with `aclose`.
    """

    def __init__(
        self,
        *,
        keepalive_s: float = KEEPALIVE_S,
        ssl_context: ssl.SSLContext | None = None,
        max_connections: int | None = None,
    ) -> None:
        """Without `ssl_context` certifi's authorities are trusted; the ALPN of one is set.

        `max_connections` bounds the connections to each origin; without it there is no bound.
        """
        self._keepalive_s = keepalive_s
        self._max_connections = max_connections
        self._ssl_context = ssl_context or httpx.create_ssl_context(trust_env=False)
        self._ssl_context.set_alpn_protocols(["http/1.1"])
        self._pools: dict[tuple[str, bytes, int | None], Pool] = {}
        self._is_closed = False

    @property
    def open_count(self) -> int:
        """Connections with a socket."""
        return sum(pool.open_count for pool in self._pools.values())

    @property
    def idle_count(self) -> int:
        """Connections ready for a request."""
        return sum(pool.idle_count for pool in self._pools.values())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response with the body unread."""
        pool = self._pool(request.url)
        outgoing = encode(request)
        limits = request.extensions.get("timeout", _NO_LIMITS)
        await pool.enter(limits.get("pool"))
        connection = pool.take() or await pool.connect(limits.get("connect"))
        exchange = Exchange(connection, outgoing, limits.get("read"), pool.loop)
        return await _exchange(connection, exchange, request, limits)

    async def aclose(self) -> None:
        """Close every connection, busy ones too. It cannot be used afterwards."""
        self._is_closed = True
        await asyncio.gather(*(pool.aclose() for pool in self._pools.values()))

    def _pool(self, url: httpx.URL) -> Pool:
        """The pool of a URL's origin."""
        if self._is_closed:
            raise RuntimeError("the transport is closed")
        key = (url.scheme, url.raw_host, url.port)
        pool = self._pools.get(key)
        if pool is None:
            if url.scheme not in _DEFAULT_PORTS or not url.raw_host:
                raise httpx.UnsupportedProtocol("needs a URL with http:// or https:// and a host")
            origin = Origin(
                host=url.raw_host.decode("ascii"),
                port=url.port if url.port is not None else _DEFAULT_PORTS[url.scheme],
                ssl_context=self._ssl_context if url.scheme == "https" else None,
            )
            pool = self._pools[key] = Pool(
                origin, keepalive_s=self._keepalive_s, max_connections=self._max_connections
            )
        return pool


async def _exchange(
    connection: Connection,
    exchange: Exchange,
    request: httpx.Request,
    limits: Mapping[str, float | None],
) -> httpx.Response:
    """Send on this connection, which is closed if that does not come to a response."""
    connection.begin(exchange)
    is_answered = False
    try:
        await exchange.send(limits.get("write"))
        is_answered = True
    finally:
        if not is_answered:
            # Not the connection: a response that has come whole has handed it back already, and
            # another request may be on it.
            exchange.fail(httpx.ReadError("given up before the response"))
    response = httpx.Response(
        exchange.status,
        headers=exchange.headers,
        stream=exchange,
        request=request,
        extensions={"http_version": exchange.http_version},
    )
    if b"".join([value for _, value in exchange.headers]).isascii():
        response.headers.encoding = "ascii"  # httpx would find out by trying each name and value
    return response
