"""The outbound limiter: which account has which gate, how long one waits, what comes of it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import redis

from gateway.config.upstream_schema import UpstreamConcurrency
from gateway.errors import StateUnavailable
from gateway.gates.place import UpstreamQueueWaitExpired, UpstreamSaturated
from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL
from tests.fakes import builders
from tests.redis_servers import RedisServer
from tests.unit.gates.replica import KEY, ROUTE, SOON_S, TWO, GateReplica

IMPATIENT = msgspec.structs.replace(TWO, acquire_timeout=0.05)


async def soon(waiting: Any) -> Any:
    async with asyncio.timeout(SOON_S):
        return await waiting


class TestTheLine:
    async def test_wakes_the_third_when_the_first_is_done(self, replica: GateReplica) -> None:
        first, _ = await replica.full()
        [third] = await replica.line_up()

        replica.limiter.leave(first, 200)

        assert (await soon(third)).number == 1
        assert (await replica.state()).in_flight == 2

    async def test_is_first_come_first_served_and_overtaken_by_nobody(
        self, replica: GateReplica
    ) -> None:
        # Given two at work and three in line
        places = await replica.full()
        lined_up = await replica.line_up(3)

        # When one is done, and another comes at once
        replica.limiter.leave(places[0], 200)
        newcomer = replica.start(replica.enter())

        # Then each waits for who was there before
        for waiting, then in zip(
            [*lined_up, newcomer], [*lined_up[1:], newcomer, None], strict=True
        ):
            place = await soon(waiting)
            assert then is None or not then.done()
            await replica.leave(place)

    async def test_passes_from_replica_to_replica(self, pair: tuple[GateReplica, ...]) -> None:
        a, b = pair
        places = await a.full()
        first, second = [*await b.line_up(), *await a.line_up()]

        await a.leave(places[0])
        assert (await soon(first)).number == 1
        assert not second.done()
        await b.leave(await first)
        assert (await soon(second)).number == 2


class TestALeftPlace:
    async def test_is_left_once(self, replica: GateReplica) -> None:
        first, _ = await replica.full()
        await replica.line_up(2)

        await replica.leave(first, 429)
        await replica.leave(first, 429)

        state = await replica.state()
        assert (state.limit, state.in_flight, state.waiting) == (1, 1, 2)

    async def test_teaches_by_its_status(self, replica: GateReplica) -> None:
        for status in (200, 429, 0, None, 201, 500):
            await replica.leave(await replica.enter(), status)

        state = await replica.state()
        assert (state.limit, state.successes) == (1, 0)
        await replica.leave(await replica.enter(), 200)
        assert (await replica.state()).successes == 1

    async def test_that_was_not_needed_is_nothing(self, replica: GateReplica) -> None:
        replica.limiter.leave(None, 200)


class TestWhoGivesUp:
    async def test_at_the_end_of_the_wait_is_told_so_without_a_status(
        self, url: str, keys: Keys
    ) -> None:
        async with GateReplica(url, keys, settings=IMPATIENT) as replica:
            await replica.full()

            with pytest.raises(UpstreamSaturated) as saturated:
                await soon(replica.enter())

            assert type(saturated.value) is UpstreamSaturated
            assert not hasattr(saturated.value, "status")
            await replica.settled()
            state = await replica.state()
            assert (state.in_flight, state.waiting) == (2, 0)

    async def test_when_cancelled_leaves_no_trace(self, replica: GateReplica) -> None:
        await replica.full()
        [waiting] = await replica.line_up()

        waiting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await waiting
        await replica.settled()
        state = await replica.state()
        assert (state.in_flight, state.waiting) == (2, 0)

    async def test_in_the_instant_of_the_grant_gives_it_back(self, replica: GateReplica) -> None:
        for turns in range(30):
            # Given two at work and two in line
            first, second = await replica.full()
            gives_up, other = await replica.line_up(2)

            # When one is done and the first in line leaves, so many turns of the loop later
            replica.limiter.leave(first, None)
            for _ in range(turns):
                await asyncio.sleep(0)
            gives_up.cancel()
            await asyncio.wait({gives_up})

            # Then the other has the place
            if not gives_up.cancelled():
                replica.limiter.leave(await gives_up, None)
            place = await soon(other)
            for held in (second, place):
                await replica.leave(held, None)
            assert (await replica.state()).in_flight == 0

    async def test_before_it_has_heard_whether_it_must_wait_leaves_no_trace(
        self, replica: GateReplica
    ) -> None:
        for turns in range(12):
            entering = asyncio.create_task(replica.enter())
            for _ in range(turns):
                await asyncio.sleep(0)
            entering.cancel()
            await asyncio.wait({entering})
            if not entering.cancelled():
                replica.limiter.leave(await entering, None)
        await replica.settled()

        assert (await replica.state()).in_flight == 0


class TestTheLog:
    @pytest.fixture
    def said(self, caplog: pytest.LogCaptureFixture) -> Callable[[str], list[dict[str, Any]]]:
        caplog.set_level(logging.INFO, "concord")
        return lambda name: [r.fields for r in caplog.records if r.getMessage() == name]

    async def test_has_each_change_of_the_limit_and_why(
        self, url: str, keys: Keys, said: Callable[[str], list[dict[str, Any]]]
    ) -> None:
        rule = UpstreamConcurrency(initial=2, max=3, success_interval=1)
        async with GateReplica(url, keys, settings=rule) as replica:
            held, place = await replica.full()
            await replica.leave(place, 200)
            await replica.leave(held, None)
            for status in (200, 429, 429, 429):
                await replica.leave(await replica.enter(), status)

            changes = [
                (one["reason"], one["old_limit"], one["new_limit"])
                for one in said("upstream_limit_changed")
            ]
            assert changes == [("probe", 2, 3), ("429_reverted_probe", 3, 2), ("429", 2, 1)]
            gate = replica.limiter.gate(ROUTE, KEY)
            assert gate
            told = said("upstream_limit_changed")[0]
            assert (told["provider"], told["key_fingerprint"]) == (
                "openai",
                gate.about["key_fingerprint"],
            )
            assert (told["in_flight"], told["waiting"]) == (1, 0)

    async def test_has_who_got_no_place_in_time_without_its_key(
        self, url: str, keys: Keys, said: Callable[[str], list[dict[str, Any]]]
    ) -> None:
        async with GateReplica(url, keys, settings=IMPATIENT) as replica:
            await replica.full()
            with pytest.raises(UpstreamSaturated):
                await soon(replica.enter())

            [line] = said("upstream_concurrency_saturated")
            assert line["provider"] == "openai"
            assert KEY not in str(line)


class TestADeadline:
    async def test_that_comes_first_ends_the_wait_and_says_so(self, replica: GateReplica) -> None:
        await replica.full()
        now_s = asyncio.get_running_loop().time()

        with pytest.raises(UpstreamQueueWaitExpired):
            await soon(replica.limiter.enter(ROUTE, KEY, now_s + 0.05))

    async def test_that_comes_later_than_the_longest_wait_is_not_what_ended_it(
        self, url: str, keys: Keys
    ) -> None:
        async with GateReplica(url, keys, settings=IMPATIENT) as replica:
            await replica.full()
            now_s = asyncio.get_running_loop().time()

            with pytest.raises(UpstreamSaturated) as saturated:
                await soon(replica.limiter.enter(ROUTE, KEY, now_s + 60))

            assert type(saturated.value) is UpstreamSaturated

    async def test_that_has_passed_still_takes_what_is_free(self, replica: GateReplica) -> None:
        assert await replica.limiter.enter(ROUTE, KEY, 0.0)

    async def test_that_has_passed_never_joins_the_line(self, replica: GateReplica) -> None:
        await replica.full()
        await replica.line_up()

        with pytest.raises(UpstreamQueueWaitExpired):
            await soon(replica.limiter.enter(ROUTE, KEY, 0.0))

        await replica.settled()
        assert (await replica.state()).waiting == 1


class TestTheGate:
    @pytest.fixture
    def limiter(self, keys: Keys) -> Any:
        return GateReplica(EMBEDDED_URL, keys).limiter

    def test_is_one_for_all_models_with_one_label_and_key(self, limiter: Any) -> None:
        one = limiter.gate(builders.route(model_id="m", provider="openai"), KEY)
        other = limiter.gate(builders.route("b", model_id="n", provider=" openai "), f" {KEY} ")

        assert one == other

    def test_is_another_for_another_key_or_label(self, limiter: Any) -> None:
        tags = {
            limiter.gate(builders.route(provider=provider), key).tag
            for provider, key in [
                ("openai", KEY),
                ("openai", "sk-2"),
                ("azure", KEY),
                ("azure", ""),
            ]
        }

        assert len(tags) == 4

    @pytest.mark.parametrize("label", ["", "  "])
    def test_of_a_blank_label_is_that_of_unknown(self, limiter: Any, label: str) -> None:
        gate = limiter.gate(builders.route(provider=label), KEY)

        assert gate == limiter.gate(builders.route(provider="unknown"), KEY)
        assert gate.about["provider"] == "unknown"

    @pytest.mark.parametrize(
        "host", ["localhost", "LOCALHOST", "127.0.0.1", "0.0.0.0", "host.docker.internal", "[::1]"]
    )
    def test_is_none_for_engines_on_this_host(self, limiter: Any, host: str) -> None:
        assert limiter.gate(builders.route(base_url=f"http://{host}:8000/v1"), KEY) is None

    @pytest.mark.parametrize(
        "base_url", ["http://10.0.0.5:8000", "https://api.openai.com/v1", "http://[::1", "nonsense"]
    )
    def test_stands_before_other_hosts_and_before_addresses_that_cannot_be_read(
        self, limiter: Any, base_url: str
    ) -> None:
        assert limiter.gate(builders.route(base_url=base_url), KEY)

    def test_is_none_where_the_limiter_is_off(self, keys: Keys) -> None:
        off = UpstreamConcurrency(enabled=False)

        assert GateReplica(EMBEDDED_URL, keys, settings=off).limiter.gate(ROUTE, KEY) is None

    def test_is_not_known_before_the_secret_is(self, keys: Keys) -> None:
        limiter = GateReplica(EMBEDDED_URL, keys, secret=None).limiter

        with pytest.raises(StateUnavailable):
            limiter.gate(ROUTE, KEY)

    def test_is_named_by_a_digest_that_the_secret_keys(self, keys: Keys, limiter: Any) -> None:
        tag = limiter.gate(ROUTE, KEY).tag
        elsewhere = GateReplica(EMBEDDED_URL, keys, secret="another").limiter.gate(ROUTE, KEY).tag

        assert re.fullmatch(r"u:openai:[0-9a-f]{12}", tag)
        assert tag != elsewhere


async def test_without_a_gate_nothing_is_asked_and_nobody_waits(keys: Keys) -> None:
    replica = GateReplica("unix:///nonexistent/redis.sock", keys)
    local = builders.route(base_url="http://localhost:8000")

    assert await replica.limiter.enter(local, KEY) is None


async def test_without_redis_it_is_the_state_that_is_unavailable(keys: Keys) -> None:
    replica = GateReplica("unix:///nonexistent/redis.sock", keys)

    with pytest.raises(StateUnavailable):
        await soon(replica.limiter.enter(ROUTE, KEY))


async def test_no_key_reaches_redis(redis_server: RedisServer, keys: Keys) -> None:
    async with GateReplica(redis_server.url, keys) as replica:
        await replica.full()
        await replica.line_up()

        with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
            gate = replica.limiter.gate(ROUTE, KEY)
            names = list(keys.gate(gate.tag).values())
            kept = [client.hgetall(names[0]), client.hgetall(names[4])]
        assert all(kept)
        assert KEY not in f"{names} {kept}"
