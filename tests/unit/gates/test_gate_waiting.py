"""What a replica does about grants that it misses, and about a store that forgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from gateway.admission.secret import Secret
from gateway.core.digests import upstream_key_id
from gateway.state.grants import NoGrants
from gateway.state.keys import Keys
from tests.redis_servers import RedisServer
from tests.unit.gates.replica import KEY, SOON_S, GateReplica

SHORT_MS = 600


@pytest.fixture
async def deaf_pair(
    redis_server: RedisServer, keys: Keys
) -> AsyncIterator[tuple[GateReplica, ...]]:
    """Two replicas whose channels nobody listens to."""
    url = redis_server.url
    async with (
        GateReplica(url, keys, "a", grants=NoGrants()) as a,
        GateReplica(url, keys, "b", grants=NoGrants()) as b,
    ):
        yield a, b


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        yield client


def forget(client: redis.Redis, keys: Keys, *kinds: str) -> None:
    """As a restart without a file, or an operator, would."""
    secret = Secret("secret").key
    assert secret
    gate = keys.gate(f"u:openai:{upstream_key_id(secret, KEY)}")
    client.delete(*(gate[kind] for kind in kinds or gate))


async def test_a_grant_that_nobody_is_told_of_is_found_by_the_poll(
    deaf_pair: tuple[GateReplica, ...],
) -> None:
    a, b = deaf_pair
    places = await a.full()
    [waiting] = await b.line_up()

    await a.leave(places[0])

    async with asyncio.timeout(SOON_S):
        assert (await waiting).number == 1
    assert (await a.state()).in_flight == 2


async def test_a_replica_tells_its_own_requests_by_itself(
    deaf_pair: tuple[GateReplica, ...],
) -> None:
    a, b = deaf_pair
    places = await a.full()
    [waiting] = await a.line_up()
    b._running.cancel()

    a._running.cancel()  # no poll, no channel
    await a.leave(places[0])

    async with asyncio.timeout(SOON_S):
        await waiting


async def test_more_wait_than_one_poll_may_name(deaf_pair: tuple[GateReplica, ...]) -> None:
    a, b = deaf_pair
    places = await a.full()
    waiting = [asyncio.create_task(b.enter()) for _ in range(300)]
    await a.until(lambda state: state.waiting == 300)

    for place in places:
        await a.leave(place)

    async with asyncio.timeout(SOON_S):
        first, second = [await waiting[0], await waiting[1]]
    assert (first.number, second.number) == (1, 2)
    for task in waiting:
        task.cancel()


async def test_places_that_the_store_forgets_are_put_back(
    redis_server: RedisServer, keys: Keys, client: redis.Redis
) -> None:
    async with GateReplica(redis_server.url, keys, lease_ms=SHORT_MS) as replica:
        places = await replica.full()

        forget(client, keys)

        await replica.until(lambda state: state.in_flight == 2)
        for place in places:
            await replica.leave(place)
        assert (await replica.state()).in_flight == 0


async def test_who_stands_in_line_stands_there_again_when_the_store_forgets(
    redis_server: RedisServer, keys: Keys, client: redis.Redis
) -> None:
    async with GateReplica(redis_server.url, keys, lease_ms=SHORT_MS) as replica:
        places = await replica.full()
        waiting = await replica.line_up(2)

        forget(client, keys, "gate_line", "gate_tickets")

        await replica.until(lambda state: state.waiting == 2)
        await replica.leave(places[0])
        async with asyncio.timeout(SOON_S):
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert sum(task.done() for task in waiting) == 1
        for task in waiting:
            task.cancel()


async def test_places_are_renewed_for_as_long_as_they_are_held(
    redis_server: RedisServer, keys: Keys
) -> None:
    async with (
        GateReplica(redis_server.url, keys, "a", lease_ms=SHORT_MS) as a,
        GateReplica(redis_server.url, keys, "b", lease_ms=SHORT_MS) as b,
    ):
        await a.full()
        [waiting] = await b.line_up()

        await asyncio.sleep(3 * SHORT_MS / 1000)

        assert not waiting.done()
        assert (await b.state()).in_flight == 2
        waiting.cancel()


async def test_places_of_a_replica_that_is_gone_come_back(
    redis_server: RedisServer, keys: Keys
) -> None:
    async with GateReplica(redis_server.url, keys, "b", lease_ms=SHORT_MS) as b:
        async with GateReplica(redis_server.url, keys, "a", lease_ms=SHORT_MS) as a:
            await a.full()  # and leaves without a word
        [first, second] = await b.line_up(2)

        async with asyncio.timeout(SOON_S):
            assert [(await first).number, (await second).number] == [1, 2]


async def test_a_request_that_the_store_does_not_answer_takes_no_place_for_good(
    own_server, keys: Keys
) -> None:
    server = own_server()
    async with GateReplica(server.url, keys, timeout_s=0.3, lease_ms=SHORT_MS) as replica:
        await replica.leave(await replica.enter())
        with redis.Redis.from_url(server.url) as client:
            # Given a store that hangs for longer than is waited for
            client.execute_command("CLIENT", "PAUSE", 1000, "ALL")

        # When
        with pytest.raises(Exception, match="Routing state is unavailable"):
            await replica.enter()

        # Then the place that it took afterwards is given back
        await replica.settled()
        assert (await replica.state()).in_flight == 0
