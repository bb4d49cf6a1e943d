"""One line for all replicas: never above the limit, first come first served, whoever dies in it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from tests.cluster.gates import (
    Upstream,
    Watched,
    Worker,
    holders,
    traces,
    until,
    waiting,
    watching,
    worker,
)

LIMIT = 8
LEASE_MS = 1500
LONG_S = 60.0
SHORT_S = 0.05


@pytest.fixture
def client(private_redis: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(private_redis, decode_responses=True) as client:
        yield client


@pytest.fixture
async def upstream(tmp_path: Path) -> AsyncIterator[Upstream]:
    async with Upstream(tmp_path / "upstream.sock") as upstream:
        yield upstream


@pytest.fixture
async def trio(private_redis: str, upstream: Upstream) -> AsyncIterator[list[Worker]]:
    """Three replicas, whose leases are short."""
    async with contextlib.AsyncExitStack() as stack:
        starting = [
            stack.enter_async_context(worker(private_redis, upstream, name, lease_ms=LEASE_MS))
            for name in ("a", "b", "c")
        ]
        yield await asyncio.gather(*starting)


@pytest.fixture
def watched(client: redis.Redis) -> Iterator[Watched]:
    with watching(client) as watched:
        yield watched


async def line_up(client: redis.Redis, *workers: Worker, each: int, hold_s: float) -> None:
    """Have so many of each stand in line, mixed."""
    before = waiting(client)
    for _ in range(each):
        for one in workers:
            one.start(1, hold_s=hold_s)
    await until(lambda: waiting(client) == before + each * len(workers), "all stand in line")


async def test_three_hundred_waiters_of_three_replicas_pass_in_their_order_eight_at_a_time(
    client: redis.Redis, trio: list[Worker], upstream: Upstream, watched: Watched
) -> None:
    for each in trio:
        each.start(100, hold_s=0.1, limit=LIMIT)
    for each in trio:
        await each.answered(100)
        await each.finish()

    assert (upstream.served, upstream.most) == (300, LIMIT)
    order = watched.order("a", "b", "c")
    assert order == list(range(1, len(order) + 1))
    assert len(order) > 200, "the others came while nobody waited"
    assert traces(client) == set()


async def test_a_killed_replica_gives_its_places_back_and_its_waiters_are_skipped(
    client: redis.Redis, trio: list[Worker], upstream: Upstream, watched: Watched
) -> None:
    # Given a replica with five of eight places and a hundred waiters, those of others among them
    a, b, c = trio
    a.start(5, hold_s=LONG_S)
    b.start(3, hold_s=1.0)
    await until(lambda: len(holders(client)) == LIMIT, "the gate is full")
    await line_up(client, a, each=50, hold_s=SHORT_S)
    await line_up(client, a, b, c, each=50, hold_s=SHORT_S)
    before = len(watched.granted)

    # When it is killed
    a.signal(signal.SIGKILL)
    await a.ended()

    # Then the others pass in their order, and in the end eight at a time again
    for other, count in ((b, 53), (c, 50)):
        assert "saturated" not in await other.answered(count)
    assert not [ticket for ticket in watched.granted[before:] if ticket.startswith("a.")]
    order = watched.order("b", "c")
    assert order == sorted(order)
    assert len(order) == 100
    await until(lambda: not any(t.startswith("a.") for t in holders(client)), "places came back")
    b.start(LIMIT, hold_s=SHORT_S)
    await b.answered(53 + LIMIT)
    assert upstream.most == LIMIT
    for other in (b, c):
        await other.finish()


async def test_a_killed_replica_leaves_no_trace(client: redis.Redis, trio: list[Worker]) -> None:
    a, b, _ = trio
    a.start(LIMIT, hold_s=LONG_S)
    await until(lambda: len(holders(client)) == LIMIT, "the gate is full")
    await line_up(client, a, each=20, hold_s=SHORT_S)

    a.signal(signal.SIGKILL)
    b.start(1, hold_s=SHORT_S)

    await b.answered(1)

    async def asked() -> set[str]:
        b.start(1, hold_s=SHORT_S)
        await asyncio.sleep(0.5)
        return traces(client)

    for _ in range(20):
        if not await asked():
            return
    pytest.fail(f"there is {traces(client)}")


async def test_a_frozen_replica_is_passed_and_has_its_numbers_when_it_moves_again(
    client: redis.Redis, trio: list[Worker], upstream: Upstream, watched: Watched
) -> None:
    # Given a full gate, and a replica whose waiters are the first in line
    a, b, c = trio
    b.start(LIMIT, hold_s=1.0)
    await until(lambda: len(holders(client)) == LIMIT, "the gate is full")
    await line_up(client, a, each=20, hold_s=SHORT_S)
    await line_up(client, c, each=40, hold_s=0.2)

    # When it freezes
    a.signal(signal.SIGSTOP)
    await b.answered(LIMIT)
    await c.answered(10)

    # Then the others pass; and when it moves again, so do its own, before who came later
    assert a.answers == []
    a.signal(signal.SIGCONT)
    await a.answered(20)
    assert len(c.answers) < 40
    await c.answered(40)
    order = watched.order("c")
    assert order == sorted(order)
    assert "saturated" not in [*a.answers, *c.answers]
    assert (upstream.most, upstream.served) == (LIMIT, 68)
    for each in trio:
        await each.finish()
    assert traces(client) == set()


async def test_grants_arrive_while_channels_are_cut_none_lost_none_doubled(
    client: redis.Redis, trio: list[Worker], upstream: Upstream
) -> None:
    cutting = asyncio.create_task(_cut(client))
    for each in trio:
        each.start(30, hold_s=SHORT_S)

    answers = [answer for each in trio for answer in await each.answered(30)]

    cutting.cancel()
    assert len(set(answers)) == 90
    assert (upstream.most, upstream.served) == (LIMIT, 90)
    for each in trio:
        await each.finish()
    assert traces(client) == set()


async def _cut(client: redis.Redis) -> None:
    while True:
        await asyncio.to_thread(client.execute_command, "CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.sleep(0.002)


async def test_a_store_that_forgets_all_loses_no_request(
    client: redis.Redis, trio: list[Worker], upstream: Upstream
) -> None:
    for each in trio:
        each.start(40, hold_s=0.1)
    await until(lambda: upstream.served > 20, "some are served")

    client.flushall()

    for each in trio:
        assert "saturated" not in await each.answered(40)
        await each.finish()
    assert upstream.served == 120
    assert traces(client) == set()
