"""How replicas hear of grants: each has a channel, to which scripts publish its tickets.

Nothing depends on a message: what is missed, a poll tells. On one server a replica has one channel
for all gates. On a cluster it has a sharded one for each, in the gate's own slot, since only there
the number of receivers is known to the script.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Protocol, cast

import hiredis
from redis._parsers.base import BaseParser
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import InvalidResponse, RedisError, ResponseError

from gateway.state.keys import Keys
from gateway.telemetry.logs import event

READ_BYTES = 65536
SILENCE_S = 2.0
"""After which the server is asked whether it is there; a second one ends the connection."""
RECONNECT_S = (0.05, 5.0)
"""The first pause before another connection, and the longest."""
SHARDED_SINCE = 7
_NOTHING = object()


class Channels:
    """Where grants are published."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.are_sharded = False
        """Known once a subscription has been made."""

    def of(self, tag: str) -> tuple[str, str]:
        """By which command and to which channel a gate's grants go, less the replica's id."""
        if self.are_sharded:
            return "SPUBLISH", self._keys.grants(tag)
        return "PUBLISH", self._keys.grants()


class Grants(Protocol):
    """Hears of the grants of one replica."""

    def expect(self, tag: str) -> None:
        """Say that there may be grants of a gate from now on."""
        ...

    def tickets(self) -> AsyncGenerator[str, None]:
        """Tickets as they are granted, for ever; an empty one when some may have been missed."""
        ...


class NoGrants:
    """Where a replica is alone its own calls' answers tell it of all its grants."""

    def expect(self, tag: str) -> None:
        """Nothing is published."""

    async def tickets(self) -> AsyncGenerator[str, None]:
        """None, for ever."""
        await asyncio.Event().wait()
        yield ""


class Subscription:
    """Hears of grants on a connection of its own, which is made again whenever it is lost."""

    def __init__(
        self,
        make: Callable[[], AbstractConnection],
        channels: Channels,
        *,
        replica_id: str,
        timeout_s: float,
    ) -> None:
        self._make = make
        self._channels = channels
        self._replica_id = replica_id
        self._timeout_s = timeout_s
        self._tags: set[str] = set()
        self._connection: AbstractConnection | None = None

    def expect(self, tag: str) -> None:
        """Subscribe to a gate's own channel, where gates have one."""
        if tag not in self._tags:
            self._tags.add(tag)
            if self._connection and self._channels.are_sharded:
                self._write(self._connection, *self._subscribe(tag))

    async def tickets(self) -> AsyncGenerator[str, None]:
        """Tickets as they are granted; an empty one after each subscription made."""
        pause_s = RECONNECT_S[0]
        while True:
            try:
                async with (
                    self._connected() as connection,
                    contextlib.aclosing(self._messages(connection)) as messages,
                ):
                    async for ticket in messages:
                        pause_s = RECONNECT_S[0]
                        yield ticket
            except ResponseError as error:
                event("grants_unheard", level=logging.WARNING, error=str(error))
            except (OSError, RedisError):
                pass  # whether Redis is there is told by those who need it
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, RECONNECT_S[1])

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[AbstractConnection]:
        connection = self._make()
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]
                self._channels.are_sharded = await _is_cluster(connection)
            task = asyncio.current_task()
            if task and task.cancelling():  # until Python 3.12 `wait_for` inside may swallow it
                raise asyncio.CancelledError
            if not self._channels.are_sharded:
                self._write(connection, *self._subscribe(""))
            for tag in self._tags if self._channels.are_sharded else ():
                self._write(connection, *self._subscribe(tag))
            self._connection = connection
            yield connection
        finally:
            self._connection = None
            await connection.disconnect(nowait=True)

    def _subscribe(self, tag: str) -> tuple[str, str]:
        publish, channels = self._channels.of(tag)
        return publish.replace("PUBLISH", "SUBSCRIBE"), channels + self._replica_id

    def _write(self, connection: AbstractConnection, *command: str) -> None:
        if connection._writer:
            connection._writer.write(hiredis.pack_command(cast(Any, command)))

    async def _messages(self, connection: AbstractConnection) -> AsyncGenerator[str, None]:
        """What is published, until the connection ends or has fallen silent."""
        parser = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=BaseParser.parse_error,
            encoding="utf-8",
            errors="replace",
            notEnoughData=_NOTHING,
        )
        reader = connection._reader
        was_silent = False
        while reader:
            try:
                async with asyncio.timeout(SILENCE_S):
                    data = await reader.read(READ_BYTES)
            except TimeoutError:
                if was_silent:
                    return
                was_silent = True
                self._write(connection, "PING")
                continue
            if not data:
                return
            was_silent = False
            parser.feed(data)
            while (said := parser.gets()) is not _NOTHING:
                if isinstance(said, RedisError):
                    raise said
                if said[0] in ("message", "smessage"):
                    yield said[2]
                elif said[0] in ("subscribe", "ssubscribe"):
                    yield ""


async def _is_cluster(connection: AbstractConnection) -> bool:
    """Whether channels can and must be sharded. A server that tells nothing is taken for one."""
    await connection.send_command("INFO")
    try:
        about = str(await connection.read_response())
    except RedisError:
        return False
    version = re.search(r"redis_version:(\d+)", about)
    return "cluster_enabled:1" in about and int(version[1] if version else 0) >= SHARDED_SINCE
