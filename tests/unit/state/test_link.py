"""The shared connection, where a real server cannot be made to misbehave on cue."""

from __future__ import annotations

import asyncio

import pytest
from redis.exceptions import ConnectionError

from gateway.state.link import SharedLink


class ClosingWriter:
    """A transport that has closed, as uvloop's do some turns before their reader is told."""

    def is_closing(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        raise RuntimeError("the handler is closed")

    def close(self) -> None:
        pass


class ClosingConnection:
    """What redis-py makes, just lost."""

    def __init__(self) -> None:
        self._reader = asyncio.StreamReader()
        self._writer = ClosingWriter()

    async def connect(self) -> None:
        pass

    async def disconnect(self, nowait: bool) -> None:
        pass


async def test_what_is_written_to_a_connection_just_lost_fails_with_the_rest() -> None:
    # Given a connection that is lost, and whose reader does not know yet
    connection = ClosingConnection()
    reader = connection._reader
    link = SharedLink(lambda: connection, timeout_s=5)  # type: ignore[arg-type, return-value]
    unexpected: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: unexpected.append(told))
    # When a command is sent, and then the reader is told
    calling = asyncio.ensure_future(link.call("PING"))
    for _ in range(5):
        await asyncio.sleep(0)
    reader.feed_eof()
    # Then its caller hears of the loss, and nobody of anything else
    with pytest.raises(ConnectionError):
        await calling
    assert not unexpected


async def test_a_connection_lost_as_soon_as_it_is_made_takes_no_calls() -> None:
    # Given a server that hangs up at once, and a healthy one after it
    lost, sound = ClosingConnection(), ClosingConnection()
    reader = sound._reader
    lost._reader.feed_eof()
    made = iter([lost, sound])
    link = SharedLink(lambda: next(made), timeout_s=5)  # type: ignore[arg-type, return-value]
    # When it is called, and again
    with pytest.raises(ConnectionError, match="as soon as it was made"):
        await link.call("FIRST")
    calling = asyncio.ensure_future(link.call("SECOND"))
    await asyncio.sleep(0.1)  # longer than a reconnect is put off
    reader.feed_data(b"+reply of the second\r\n")
    # Then the second call gets its own reply
    async with asyncio.timeout(2):
        assert await calling == "reply of the second"
    reader.feed_eof()
    await link.close()
