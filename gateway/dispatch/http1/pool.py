"""The connections to one origin.

The one used last is used first, so that the rest grow old and are closed. Idle ones are closed by
one timer for all. Without a limit nobody waits here; with one, requests wait in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import httpx
from msgspec import Struct

from gateway.dispatch.http1.connection import Connection

CLOSE_TIMEOUT_S = 2.0
WAIT_S = 5.0
"""How long a request waits for a place below the limit when it does not say."""


class Origin(Struct, frozen=True):
    """Where a pool connects to."""

    host: str
    port: int
    ssl_context: ssl.SSLContext | None


class Pool:
    """Connections to one origin, for one event loop."""

    def __init__(self, origin: Origin, *, keepalive_s: float, max_connections: int | None) -> None:
        self._origin = origin
        self._keepalive_s = keepalive_s
        self.loop = asyncio.get_running_loop()
        self._open: set[Connection] = set()
        self._idle: dict[Connection, float] = {}  # until when, the oldest first
        self._sweeper: asyncio.TimerHandle | None = None
        self._places = None if max_connections is None else asyncio.Semaphore(max_connections)
        self._is_closed = False
        self._is_empty = asyncio.Event()

    @property
    def open_count(self) -> int:
        """Connections with a socket."""
        return len(self._open)

    @property
    def idle_count(self) -> int:
        """Connections ready for a request."""
        return len(self._idle)

    async def enter(self, wait_s: float | None) -> None:
        """Wait for a place below the limit. Raises httpx.PoolTimeout after `wait_s`, or WAIT_S.

        The place belongs to the connection got next, by `take` or `connect`.
        """
        if self._places is None:
            return
        wait_s = WAIT_S if wait_s is None else wait_s
        try:
            async with asyncio.timeout(wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout(f"no free connection within {wait_s} s") from None

    def take(self) -> Connection | None:
        """The idle connection that was used last and that its peer has left open, if any."""
        now = self.loop.time()
        while self._idle:
            connection, until = self._idle.popitem()
            if until > now and connection.is_quiet():
                connection.has_place = True
                return connection
            connection.abort()
        return None

    async def connect(self, limit_s: float | None) -> Connection:
        """Open a connection: names, TCP and TLS within `limit_s`.

        The addresses of a name are tried one after the other. Raises httpx.ConnectError and
        httpx.ConnectTimeout, and gives back the place it was to have.
        """
        connection = Connection(self)
        origin = self._origin
        is_ready = False
        try:
            async with asyncio.timeout(limit_s):
                await self.loop.create_connection(
                    lambda: connection,
                    origin.host,
                    origin.port,
                    ssl=origin.ssl_context,
                    server_hostname=origin.host.rstrip(".") if origin.ssl_context else None,
                )
            if self._is_closed or connection.is_closing:
                raise ConnectionAbortedError("closed as soon as it was open")
            # Not earlier: uvloop reports no end of a connection that was cancelled while it opened.
            self._open.add(connection)
            connection.has_place = is_ready = True
        except TimeoutError as error:
            raise httpx.ConnectTimeout(str(error) or f"not within {limit_s} s") from error
        except (OSError, UnicodeError, OverflowError) as error:
            raise httpx.ConnectError(str(error) or type(error).__name__) from error
        finally:
            if not is_ready:
                connection.abort()
                self._give_back_place()
        return connection

    async def aclose(self) -> None:
        """Close every connection, busy ones too, and wait until they are."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._is_empty.wait()

    def released(self, connection: Connection) -> None:
        """Keep a connection that is ready for another exchange."""
        until = self.loop.time() + self._keepalive_s
        self._idle[connection] = until
        if self._sweeper is None:
            self._sweeper = self.loop.call_at(until, self._sweep)
        self._leave(connection)

    def closed(self, connection: Connection) -> None:
        """Forget a connection that has no socket any more."""
        self._idle.pop(connection, None)
        self._open.discard(connection)
        self._leave(connection)
        if self._is_closed and not self._open:
            self._is_empty.set()

    def _leave(self, connection: Connection) -> None:
        if connection.has_place:
            connection.has_place = False
            self._give_back_place()

    def _give_back_place(self) -> None:
        if self._places is not None:
            self._places.release()

    def _sweep(self) -> None:
        """Close the connections that were idle for too long."""
        self._sweeper = None
        now = self.loop.time()
        for connection, until in list(self._idle.items()):
            if until > now:
                self._sweeper = self.loop.call_at(until, self._sweep)
                return
            connection.abort()
            del self._idle[connection]
