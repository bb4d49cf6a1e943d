"""The runner when Redis is lost, hangs or is far too busy, and when callers go away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from gateway.state.keys import Keys
from tests.redis_servers import RedisServer
from tests.unit.state.caller import HASTY_S, SOON_S, Caller, fails


class TestALostConnection:
    async def test_is_made_again_without_an_error(
        self, caller: Caller, operator: redis.Redis
    ) -> None:
        for _ in range(3):
            await asyncio.gather(*[caller.beat() for _ in range(8)])
            operator.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

            assert await asyncio.gather(*[caller.beat() for _ in range(8)]) == [1] * 8

    async def test_to_a_server_that_is_gone_is_an_outage_at_once(self, keys: Keys) -> None:
        caller = Caller("unix:///nonexistent/redis.sock", keys)
        for _ in range(5):
            assert (await fails(caller)).may_have_happened
        assert not caller.runner.is_available
        await caller.runner.close()


async def test_server_that_never_answers_is_waited_for_once_per_call(
    keys: Keys, tmp_path: Path
) -> None:
    # Given a server that accepts and is silent
    accepted = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.read()
        writer.close()

    path = tmp_path / "redis.sock"
    async with await asyncio.start_unix_server(listen, path):
        caller = Caller(f"unix://{path}", keys, timeout_s=HASTY_S)

        # When
        for _ in range(3):
            await fails(caller)
        await caller.runner.close()

    # Then no call has tried twice
    assert 1 <= len(accepted) <= 3


@pytest.fixture
async def hasty(server: RedisServer, keys: Keys) -> AsyncIterator[Caller]:
    """A caller that waits no longer than it must."""
    caller = Caller(server.url, keys, timeout_s=HASTY_S)
    yield caller
    await caller.runner.close()


class TestAServerThatHangs:
    @pytest.fixture
    def hung(self, operator: redis.Redis) -> Iterator[int]:
        """The id of a process that is stopped in the test, and goes on after it."""
        pid = operator.info("server")["process_id"]
        yield pid
        os.kill(pid, signal.SIGCONT)

    async def test_costs_each_call_one_wait_until_the_breaker_opens(
        self, hasty: Caller, hung: int
    ) -> None:
        await hasty.beat()
        os.kill(hung, signal.SIGSTOP)

        async with asyncio.timeout(5 * HASTY_S + SOON_S):
            for _ in range(5):
                assert (await fails(hasty)).may_have_happened
        assert not hasty.runner.is_available

        assert not (await fails(hasty)).may_have_happened, "it was not sent"

    async def test_serves_again_when_it_goes_on(self, hasty: Caller, hung: int) -> None:
        # Given an open breaker
        os.kill(hung, signal.SIGSTOP)
        for _ in range(5):
            await fails(hasty)

        # When the server goes on
        os.kill(hung, signal.SIGCONT)

        # Then nothing is asked before the pause is over, and one trial closes it
        await fails(hasty)
        hasty.clock.now += 1.0
        assert await hasty.beat() == 1
        assert hasty.runner.is_available

    async def test_one_slow_answer_opens_nothing(self, hasty: Caller, hung: int) -> None:
        await hasty.beat()
        os.kill(hung, signal.SIGSTOP)
        await fails(hasty)
        os.kill(hung, signal.SIGCONT)

        assert hasty.runner.is_available
        assert await hasty.beat() == 1


async def test_cancelled_calls_never_leave_their_reply_to_the_next(
    server: RedisServer, keys: Keys
) -> None:
    caller = Caller(server.url, keys)
    await caller.beat()
    for turn in range(20):
        calls = [
            asyncio.create_task(caller.admit(f"r{turn}.{i}", f"at-{turn}-{i}")) for i in range(8)
        ]
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        for i, call in enumerate(calls):
            with contextlib.suppress(asyncio.CancelledError):
                assert await call == f"at-{turn}-{i}"
    assert caller.runner.is_available
    await caller.runner.close()


async def test_cancellation_is_never_lost(caller: Caller) -> None:
    async def beats() -> None:
        for _ in range(100):
            await caller.beat()

    await caller.beat()
    for steps in range(40):
        task = asyncio.create_task(beats())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), f"after {steps} steps it went on"
