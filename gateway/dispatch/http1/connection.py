"""One socket to a peer: the asyncio protocol between an exchange and a transport.

It closes by aborting, always: a close that first flushes would wait for a peer that does not
read, and over TLS for one that does not say goodbye.
"""

from __future__ import annotations

import asyncio
import select
from typing import Protocol, cast

import httpx

from gateway.dispatch.http1.exchange import Exchange


class Owner(Protocol):
    """Who keeps a connection, which is told where it went."""

    def released(self, connection: Connection) -> None:
        """It is ready for another exchange."""

    def closed(self, connection: Connection) -> None:
        """It has no socket any more. Not called where connecting was given up."""


class Connection(asyncio.Protocol):
    """A connection, with at most one exchange on it."""

    def __init__(self, owner: Owner) -> None:
        self.is_write_paused = False
        self.is_closing = False
        self.has_place = False
        """Whether it counts against its owner's limit."""
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._poll = select.poll()

    def begin(self, exchange: Exchange) -> None:
        """Receive for this exchange from now on."""
        self._exchange = exchange

    def is_quiet(self) -> bool:
        """Whether the peer has sent nothing since, its hanging up included.

        The kernel is asked: a busy event loop learns of it later.
        """
        return not self.is_closing and not self._poll.poll(0)

    def write(self, head: bytes, body: bytes = b"") -> None:
        """Send, or buffer, these bytes. What comes after the end is dropped."""
        if self.is_closing:
            return
        assert self._transport is not None
        if body:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head)

    def pause_reading(self) -> None:
        """Leave the peer to wait."""
        if self._transport is not None and not self.is_closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        if self._transport is not None and not self.is_closing:
            self._transport.resume_reading()

    def release(self, *, is_reusable: bool) -> None:
        """End the exchange. A request that is still on its way cannot be taken back: close."""
        self._exchange = None
        assert self._transport is not None
        if self.is_closing or not is_reusable or self._transport.get_write_buffer_size():
            self.abort()
        else:
            self._owner.released(self)

    def abort(self) -> None:
        """Close at once, and end the exchange if there is one."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.fail(httpx.ReadError("the connection was closed on this side"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, unless nobody waits for it any more."""
        # uvloop's transports have the methods without being subclasses.
        self._transport = cast(asyncio.Transport, transport)
        if self.is_closing:
            self._transport.abort()
        elif (socket := transport.get_extra_info("socket")) is not None:
            self._poll.register(socket.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Hand on what the peer sends; without a request it has nothing to say."""
        if self._exchange is None:
            self.abort()
        else:
            self._exchange.feed(data)

    def eof_received(self) -> None:
        """A peer that sends no more cannot answer another request."""
        self._lose(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody."""
        self._lose(exc)
        self._owner.closed(self)

    def pause_writing(self) -> None:
        """Note that the transport's buffer is full."""
        self.is_write_paused = True

    def resume_writing(self) -> None:
        """Note that it has room again."""
        self.is_write_paused = False
        if self._exchange is not None:
            self._exchange.wake()

    def _lose(self, error: Exception | None) -> None:
        if self._exchange is not None:
            self._exchange.lose(error)
        if not self.is_closing:
            self.abort()
