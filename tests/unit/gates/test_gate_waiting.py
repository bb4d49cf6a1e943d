"""What a replica does about grants that it misses, and about a store that forgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import redis

from gateway.admission.secret import Secret
from gateway.core.digests import upstream_key_id
from gateway.core.gate import Gate
from gateway.state.gate_store import PollReply
from gateway.state.grants import NoGrants
from gateway.state.keys import Keys
from tests.fakes.holds import Hold
from tests.redis_servers import RedisServer
from tests.unit.gates.replica import KEY, ROUTE, SOON_S, GateReplica

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
        await waiting
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


async def test_a_fault_in_hearing_of_grants_ends_neither_that_nor_the_polls(
    redis_server: RedisServer, keys: Keys
) -> None:
    heard = asyncio.Event()

    class Faulty(NoGrants):
        async def tickets(self) -> AsyncGenerator[str, None]:
            if faults:
                raise faults.pop()
            heard.set()
            await asyncio.Event().wait()
            yield ""

    faults = [ValueError("of our own")]
    url = redis_server.url
    async with (
        GateReplica(url, keys, "a") as a,
        GateReplica(url, keys, "b", grants=Faulty()) as b,
    ):
        places = await a.full()
        [waiting] = await b.line_up()
        await a.leave(places[0])
        async with asyncio.timeout(SOON_S):
            await waiting
            await heard.wait()


async def test_more_wait_than_one_poll_may_name(deaf_pair: tuple[GateReplica, ...]) -> None:
    a, b = deaf_pair
    places = await a.full()
    waiting = [b.start(b.enter()) for _ in range(300)]
    await a.until(lambda state: state.waiting == 300)
    b._running.cancel()  # who cannot be told and does not poll for two seconds loses its number

    for place in places:
        await a.leave(place)
    await b.waiting.poll()

    async with asyncio.timeout(SOON_S):
        first, second = [await waiting[0], await waiting[1]]
    assert (first.number, second.number) == (1, 2)


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


async def test_what_is_held_is_put_back_before_who_stands_in_line_may_take_its_place(
    redis_server: RedisServer, keys: Keys, client: redis.Redis
) -> None:
    async with GateReplica(redis_server.url, keys) as replica:
        await replica.full()
        [waiting] = await replica.line_up()

        forget(client, keys)

        await replica.until(lambda state: state.waiting == 1)
        assert not waiting.done()
        assert (await replica.state()).in_flight == 2


async def test_places_are_put_back_as_soon_as_a_store_that_was_away_is_heard_again(
    own_server, keys: Keys
) -> None:
    server = own_server()
    async with GateReplica(server.url, keys, lease_ms=600_000) as replica:  # not due for long
        await replica.full()
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            forget(client, keys)
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

        await replica.until(lambda state: state.in_flight == 2)


async def test_a_gate_that_is_entered_again_while_two_polls_are_under_way_is_not_forgotten(
    url: str, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with GateReplica(url, keys) as replica:
        # Given one gate where somebody waits, and another with nobody, which a first poll has seen
        replica._running.cancel()
        await replica.full()
        await replica.line_up()
        await replica.leave(await replica.enter(key="another"))
        hold, poll = Hold(), replica.store.poll

        async def held_up(gate: Gate, **how: Any) -> PollReply:
            reply = await poll(gate, **how)
            await hold.wait()
            return reply

        monkeypatch.setattr(replica.store, "poll", held_up)
        first = asyncio.create_task(replica.waiting.poll())
        await hold.reached.wait()
        monkeypatch.setattr(replica.store, "poll", poll)

        # When a second one forgets the empty gate, others enter it, and the first one goes on
        await replica.waiting.poll()
        places = [await replica.enter(key="another") for _ in range(2)]
        waiting = replica.start(replica.enter(key="another"))
        gate = replica.limiter.gate(ROUTE, "another")
        await replica.until(lambda state: state.waiting == 1, gate)
        hold.go()
        await first

        # Then who waits there is told of its place
        replica.limiter.leave(places[0], None)
        async with asyncio.timeout(SOON_S):
            await waiting


async def test_the_rule_that_came_last_holds_also_for_what_was_taken_under_another(
    replica: GateReplica,
) -> None:
    before = Gate(tag="u:acme:0123456789ab", limit=4, most=4, interval=1)
    after = msgspec.structs.replace(before, limit=1, most=1)
    place = await replica.waiting.enter(before, SOON_S)
    other = await replica.waiting.enter(before, SOON_S)
    assert place
    assert other
    waiting = replica.start(replica.waiting.enter(after, SOON_S))
    await replica.until(lambda state: state.waiting == 1, after)

    # One success is enough to learn from: by the old rule the limit would be four.
    replica.waiting.leave(place, 200)
    await replica.settled()

    assert (await replica.state(before)).limit == 1
    assert not waiting.done()
    replica.waiting.leave(other, 200)
    async with asyncio.timeout(SOON_S):
        assert await waiting


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


async def test_who_stands_in_line_goes_on_waiting_while_the_store_is_away(
    own_server, keys: Keys
) -> None:
    server = own_server()
    async with GateReplica(server.url, keys, timeout_s=0.2) as replica:
        place, _ = await replica.full()
        [waiting] = await replica.line_up()
        with redis.Redis.from_url(server.url) as client:
            # Given a store that hangs for longer than is waited for
            client.execute_command("CLIENT", "PAUSE", 600, "ALL")

        # When a place is given back meanwhile
        with pytest.raises(Exception, match="Routing state is unavailable"):
            await replica.state()
        await replica.leave(place)

        # Then it goes to who has waited
        async with asyncio.timeout(SOON_S):
            assert (await waiting).number == 1
        assert (await replica.state()).in_flight == 2
