"""One connection to Redis that many callers share: the hot path's.

redis-py makes the connection (TCP, unix socket, TLS, authentication, database); from then on calls
are written together once per turn of the event loop, and replies are parsed by hiredis and given
out in order. That costs a fraction of a pool that hands a connection to every call.

- A reply belongs to the oldest call without one. A call whose caller has gone keeps its place, and
  its reply is dropped.
- A call waits no longer than the timeout. One timer watches all of them.
- A connection that stays silent for much longer than that is given up.
- Calls under way on a lost connection fail with `ConnectionError`; the next call connects anew.
"""

from __future__ import annotations

import asyncio
import builtins
import random
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

import hiredis
from redis._parsers.base import BaseParser
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    ConnectionError,
    InvalidResponse,
    RedisError,
    ResponseError,
    TimeoutError,
)

READ_BYTES = 65536
RECONNECT_S = 0.02
"""At most so long a replica waits before it connects again."""
GIVE_UP_AFTER = 10
"""Timeouts after which a silent connection is taken for dead."""
TURNS = 3
"""Turns of the event loop from readable bytes to a reply, at the most."""
_NOTHING = object()
_INSIDE_SCRIPT = re.compile(r"^Error running script .*: -([A-Z]+) ")

Argument = str | bytes | int | float


class Link(Protocol):
    """Sends commands one by one. MUST raise redis-py's exceptions, and MUST be closed."""

    async def call(self, *command: Argument) -> Any:
        """Send a command and wait for its reply."""
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...


class _Call:
    __slots__ = ("due_s", "reply")

    def __init__(self, reply: asyncio.Future[Any], due_s: float) -> None:
        self.reply = reply
        self.due_s = due_s


class SharedLink:
    """The link over one connection. Belongs to the event loop that first calls it."""

    def __init__(self, make: Callable[[], AbstractConnection], *, timeout_s: float) -> None:
        self._make = make
        self._timeout_s = timeout_s
        self._connection: AbstractConnection | None = None
        self._loop: asyncio.AbstractEventLoop
        self._connecting: asyncio.Task[None] | None = None
        self._was_lost = False
        self._reading: asyncio.Task[None] | None = None
        self._calls: deque[_Call] = deque()
        self._unsent: list[bytes] = []
        self._watch: asyncio.TimerHandle | None = None

    async def call(self, *command: Argument) -> Any:
        """Send a command and wait for its reply.

        Raises what redis-py raises: `TimeoutError`, `ConnectionError`, or the server's own error.
        """
        if self._connection is None:
            self._loop = asyncio.get_running_loop()  # asked once: it costs a call to the kernel
            await self._connect()
            if self._connection is None:
                # A call without a connection would stand before those of the next one, and take
                # the reply of another.
                raise ConnectionError("lost as soon as it was made")
        loop = self._loop
        reply: asyncio.Future[Any] = loop.create_future()
        self._calls.append(_Call(reply, loop.time() + self._timeout_s))
        self._unsent.append(hiredis.pack_command(cast(Any, command)))
        if len(self._unsent) == 1:
            loop.call_soon(self._flush)
        if self._watch is None:
            self._watch_from(loop.time())
        return await reply

    async def close(self) -> None:
        """Close the connection. Calls under way fail."""
        if self._connecting:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        reading = self._reading
        self._lose(ConnectionError("closed"))
        if reading:
            await asyncio.wait({reading})

    async def _connect(self) -> None:
        """Wait, together with all other callers, for the one connection to be made."""
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._open())
            self._connecting.add_done_callback(self._connected)
        # A caller that leaves must not take the others' connection along.
        await asyncio.shield(self._connecting)

    async def _open(self) -> None:
        if self._was_lost:  # by all replicas at the same moment: they come back one by one
            await asyncio.sleep(random.uniform(0, RECONNECT_S))
        connection = self._make()
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]
            self._connection = connection
            self._was_lost = False
            self._reading = asyncio.ensure_future(self._read(connection))
        except builtins.TimeoutError as error:
            raise TimeoutError("connecting took too long") from error
        except OSError as error:
            raise ConnectionError(f"cannot connect: {error}") from error
        except ResponseError as error:  # to what redis-py sends first, such as a SELECT
            raise ConnectionError(f"turned away: {error}") from error
        finally:
            if self._connection is not connection:
                await connection.disconnect(nowait=True)

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # told to whoever waited; nobody may have

    def _flush(self) -> None:
        """Write what this turn of the loop has gathered."""
        data, self._unsent = b"".join(self._unsent), []
        writer = self._connection and self._connection._writer
        # A connection may be closed a few turns before its reader learns of it, which then fails
        # these calls with the others.
        if writer and not writer.is_closing():
            writer.write(data)

    async def _read(self, connection: AbstractConnection) -> None:
        """Give out replies until the connection ends."""
        parser = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=BaseParser.parse_error,
            encoding="utf-8",
            errors="replace",
            notEnoughData=_NOTHING,
        )
        reader = connection._reader
        failure: RedisError = ConnectionError("the server closed the connection")
        try:
            while reader and (data := await reader.read(READ_BYTES)):
                parser.feed(data)
                is_replica = False
                while (reply := parser.gets()) is not _NOTHING:
                    is_replica |= isinstance(reply, RedisError) and code_of(reply) == "READONLY"
                    self._deliver(reply)
                if is_replica:  # the primary is elsewhere now: connect anew
                    failure = ConnectionError("connected to a replica")
                    break
        except OSError as error:
            failure = ConnectionError(str(error))
        except InvalidResponse as error:
            failure = error
        finally:
            if self._connection is connection:
                self._lose(failure)

    def _deliver(self, reply: Any) -> None:
        if not self._calls:
            return  # a push message, or a server that speaks out of turn
        waiting = self._calls.popleft().reply
        if waiting.done():
            return  # its caller has gone
        if isinstance(reply, RedisError):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)

    def _lose(self, failure: RedisError) -> None:
        """Give the connection up and fail what was under way on it."""
        connection, self._connection, self._reading = self._connection, None, None
        self._was_lost = True
        calls, self._calls = self._calls, deque()
        self._unsent.clear()
        if self._watch:
            self._watch.cancel()
            self._watch = None
        if connection and connection._writer:
            connection._writer.close()
            connection._writer = connection._reader = None
        for call in calls:
            if not call.reply.done():
                call.reply.set_exception(failure)

    def _watch_from(self, now_s: float) -> None:
        self._watch = self._loop.call_at(now_s + self._timeout_s / 4, self._look, TURNS)

    def _look(self, turns: int) -> None:
        """Fail the calls that are overdue.

        When this process was the busy one, their replies lie unread: a few turns of the loop come
        first, in which those are read.
        """
        loop = self._loop
        now = loop.time()
        self._watch = None
        if not self._calls:
            return
        if self._calls[0].due_s > now:
            return self._watch_from(now)
        if turns:
            self._watch = loop.call_later(0, self._look, turns - 1)
            return
        if now - self._calls[0].due_s > GIVE_UP_AFTER * self._timeout_s:
            return self._lose(ConnectionError("the server has stopped answering"))
        for call in self._calls:
            if call.due_s > now:
                break
            if not call.reply.done():
                call.reply.set_exception(TimeoutError("no answer in time"))
        self._watch_from(now)


def code_of(error: RedisError) -> str:
    """The code of an error reply, such as `OOM`.

    redis-py cuts the codes that it knows off the text; servers before 7 wrap the error of a call
    inside a script into one of the script's.
    """
    text = str(error)
    if inside := _INSIDE_SCRIPT.match(text):
        return inside[1]
    return getattr(error, "status_code", None) or text.partition(" ")[0]
