"""The engine hold: so many streams without output, one line per engine, nobody is failed by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from gateway.config.upstream_schema import UpstreamConcurrency
from gateway.core.gate import Gate
from gateway.core.route import Route
from gateway.gates.hold import engine_address, engine_gate
from gateway.gates.place import Place, UpstreamQueueWaitExpired
from gateway.state.gate_store import GateReply
from gateway.state.keys import Keys
from tests.fakes import builders
from tests.unit.gates.replica import SOON_S, TWO, GateReplica

ENGINE = builders.route(base_url="http://localhost:18003/v1")
IMPATIENT = msgspec.structs.replace(TWO, acquire_timeout=0.02)


async def enter(
    replica: GateReplica, limit: int = 1, route: Route = ENGINE, deadline_s: float | None = None
) -> Place:
    async with asyncio.timeout(SOON_S):
        place = await replica.hold.enter(route, limit, is_stream=True, deadline_s=deadline_s)
    assert place
    return place


def at(limit: int = 1) -> Gate:
    return engine_gate(ENGINE, limit)


async def lined_up(replica: GateReplica, limit: int = 1) -> asyncio.Task[Place]:
    """One more that stands in line."""
    before = (await replica.state(at())).waiting
    waiting = replica.start(enter(replica, limit))
    is_there: Callable[[GateReply], bool] = lambda state: state.waiting == before + 1  # noqa: E731
    await replica.until(is_there, at())
    return waiting


async def in_ms(ms: int) -> float:
    return asyncio.get_running_loop().time() + ms / 1000


async def test_the_second_stream_waits_for_the_first_output_of_the_first(
    replica: GateReplica,
) -> None:
    first = await enter(replica)
    second = await lined_up(replica)

    replica.hold.leave(first)

    async with asyncio.timeout(SOON_S):
        assert (await second).number == 1


async def test_a_stream_that_ends_after_its_first_output_frees_nothing_twice(
    replica: GateReplica,
) -> None:
    first = await enter(replica)
    replica.hold.leave(first)
    await enter(replica)
    await lined_up(replica)

    replica.hold.leave(first)
    await replica.settled()

    state = await replica.state(at())
    assert (state.in_flight, state.waiting) == (1, 1)


async def test_with_a_deadline_one_waits_until_then_though_the_limiter_would_not_so_long(
    url: str, keys: Keys
) -> None:
    async with GateReplica(url, keys, settings=IMPATIENT) as replica:
        await enter(replica)
        loop = asyncio.get_running_loop()
        deadline_s = await in_ms(150)

        with pytest.raises(UpstreamQueueWaitExpired):
            await enter(replica, deadline_s=deadline_s)

        assert loop.time() >= deadline_s
        await replica.settled()
        state = await replica.state(at())
        assert (state.in_flight, state.waiting) == (1, 0)


async def test_without_a_deadline_one_goes_on_over_the_limit(url: str, keys: Keys) -> None:
    async with GateReplica(url, keys, settings=IMPATIENT) as replica:
        await enter(replica)

        place = await enter(replica)

        assert place.is_over
        state = await replica.state(at())
        assert (state.limit, state.in_flight, state.waiting) == (1, 2, 0)


async def test_without_any_time_to_wait_one_goes_on_over_the_limit_at_once(
    url: str, keys: Keys
) -> None:
    async with GateReplica(url, keys, settings=UpstreamConcurrency(acquire_timeout=0)) as replica:
        await enter(replica)

        assert (await enter(replica)).is_over


async def test_a_deadline_that_has_passed_takes_what_is_free(replica: GateReplica) -> None:
    assert not (await enter(replica, deadline_s=0.0)).is_over


async def test_a_deadline_that_has_passed_leaves_the_line_as_it_is(replica: GateReplica) -> None:
    await enter(replica)
    await lined_up(replica)

    with pytest.raises(UpstreamQueueWaitExpired):
        await enter(replica, deadline_s=0.0)

    assert (await replica.state(at())).waiting == 1


async def test_a_higher_limit_lets_those_in_line_pass_before_who_brings_it(
    replica: GateReplica,
) -> None:
    await enter(replica)
    waiting = await lined_up(replica)

    newcomer = replica.start(enter(replica, limit=2))

    async with asyncio.timeout(SOON_S):
        await waiting
    await replica.until(lambda state: state.waiting == 1, at())
    assert not newcomer.done()


async def test_who_is_cancelled_leaves_no_trace(replica: GateReplica) -> None:
    await enter(replica)
    waiting = await lined_up(replica)

    waiting.cancel()
    await asyncio.wait({waiting})
    await replica.settled()

    state = await replica.state(at())
    assert (state.in_flight, state.waiting) == (1, 0)


async def test_it_holds_though_the_limiter_is_off(url: str, keys: Keys) -> None:
    off = UpstreamConcurrency(enabled=False)
    async with GateReplica(url, keys, settings=off) as replica:
        await enter(replica)

        with pytest.raises(UpstreamQueueWaitExpired):
            await enter(replica, deadline_s=0.0)


@pytest.mark.parametrize(
    ("route", "is_stream"),
    [(builders.route(base_url="https://api.openai.com/v1"), True), (ENGINE, False)],
    ids=["remote", "whole answer"],
)
async def test_it_holds_neither_remote_requests_nor_whole_answers(
    replica: GateReplica, route: Route, is_stream: bool
) -> None:
    assert await replica.hold.enter(route, 1, is_stream=is_stream) is None


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("http://localhost:18003/v1", "localhost:18003"),
        ("http://LOCALHOST:18003/", "localhost:18003"),
        ("http://localhost:18004/v1", "localhost:18004"),
        ("http://localhost", "localhost:80"),
        ("https://localhost/v1", "localhost:443"),
    ],
)
def test_an_engine_is_known_by_its_host_and_port(base_url: str, address: str) -> None:
    assert engine_address(base_url) == address
    assert engine_address(base_url, "host-a") == f"{address}@host-a"
