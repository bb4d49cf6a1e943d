"""Long prompts keep out of each other's way, and what they count for ends with their prefill."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import LEASE_S
from tests.cluster.harness import Cluster, Engine
from tests.cluster.load import Answer, Streams, Watch, ask, clients, idle, until

INTERVENE, ELEPHANT = 500, 1000
"""Tokens; small ones, so that the tests need no long prompts to meet them."""
PREFILL_PER_S = 1500
SLOW = {
    "ttft_ms": 0,
    "prefill_tokens_per_s": PREFILL_PER_S,
    "tokens_per_s": 20,
    "output_tokens": 400,
}
QUICK = {"ttft_ms": 0, "prefill_tokens_per_s": 0, "tokens_per_s": 20, "output_tokens": 40}
PAIRS, ROUNDS = 20, 3
BYTES_PER_TOKEN = 4


def described(engines: list[Engine]) -> list[dict[str, Any]]:
    """`m` and some like it are on the two slow engines, `quick` on the third.

    `hasty` waits for a first token for a short time only, `quick` takes priorities. The slow
    engines differ in weight, so that it is not chance what keeps prompts apart.
    """
    slow = [
        {"kind": "sglang", "base_url": engine.url, "weight": weight}
        for engine, weight in zip(engines, (9, 1), strict=False)
    ]
    quick = {"kind": "sglang", "base_url": engines[2].url, "priority_scheduling": True}
    hasty = [{**route, "timeouts": {"first_byte": 0.5}} for route in slow]
    routes = {"m": slow, "hasty": hasty, "quick": [quick]}
    routes |= {f"pair-{n}": slow for n in range(PAIRS)}
    return [
        {"id": id, "name": id, "provider": "sglang", "route": listed}
        for id, listed in routes.items()
    ]


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("prefill"),
        module_redis,
        engines={"engine-a": SLOW, "engine-b": SLOW, "engine-c": QUICK},
        models=described,
        routing={
            "affinity": {},
            "prefill": {"intervene_tokens": INTERVENE, "elephant_tokens": ELEPHANT},
            "state": {
                "lease_s": LEASE_S,
                "socket_timeout_ms": 500,
                "heartbeat_s": 0.2,
                "replica_ttl_s": 2.0,
            },
        },
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(filling: Cluster) -> Cluster:
    filling.reset()
    return filling


def prompt(tokens: int, letter: str = "x") -> str:
    """A text of this size."""
    return letter * (tokens * BYTES_PER_TOKEN)


def backlog(cluster: Cluster, model: str = "m") -> dict[str, int]:
    """What waits for its first token, summed over endpoints: tokens, elephants, own tokens."""
    sums = waiting()
    for name, text in cluster.row(model).items():
        what = "own" if ":own:" in name else name.rpartition(":")[2]
        if what in sums:
            sums[what] += int(text)
    return sums


def waiting(*prompts: int) -> dict[str, int]:
    """The backlog that prompts of these sizes make, none of them cached."""
    elephants = sum(tokens >= ELEPHANT for tokens in prompts)
    return {"prefill_tokens": sum(prompts), "elephants": elephants, "own": sum(prompts)}


async def test_of_two_elephants_at_once_neither_meets_the_other_while_an_engine_is_free(
    cluster: Cluster,
) -> None:
    async with clients(cluster.replicas) as https:
        for turn in range(ROUNDS):
            # When two long prompts of new sessions come at once through two replicas, to each of
            # many models, whose engines prefill them for a second
            answers = await asyncio.gather(
                *(
                    ask(
                        https[(n + place) % 3],
                        prompt(PREFILL_PER_S),
                        model=f"pair-{n}",
                        session=f"elephant-{turn}-{n}-{place}",
                        max_tokens=1,
                        stream=True,
                    )
                    for n in range(PAIRS)
                    for place in (0, 1)
                )
            )
            # Then each has an engine of its own
            assert {a.status for a in answers} == {200}
            first, second = answers[::2], answers[1::2]
            assert [n for n in range(PAIRS) if first[n].engine == second[n].engine] == []


async def test_an_elephant_is_served_where_no_engine_is_free_of_others(cluster: Cluster) -> None:
    async with clients(cluster.replicas) as https:
        # When there are more elephants than engines
        answers = await asyncio.gather(
            *(
                ask(https[n % 3], prompt(ELEPHANT), session=f"herd-{n}", max_tokens=1)
                for n in range(7)
            )
        )
    # Then none is refused, and the engines share them
    assert {a.status for a in answers} == {200}
    assert {a.engine for a in answers} == {"engine-a", "engine-b"}


async def test_a_prompt_that_goes_on_from_a_cached_one_counts_for_its_new_part_only(
    cluster: Cluster,
) -> None:
    engine = cluster.engines[2]
    long, more = 500_000, ELEPHANT - 1
    opening = {"role": "user", "content": prompt(long)}
    going_on = [
        opening,
        {"role": "assistant", "content": prompt(100)},
        {"role": "user", "content": prompt(more - 100)},
    ]
    async with clients(cluster.replicas) as https:
        # Given a session whose first prompt of half a million tokens has been answered
        first = await ask(https[0], session="warm", model="quick", messages=[opening], max_tokens=1)
        assert first.status == 200
        await until(lambda: cluster.is_idle("quick"), "a settled turn")
        assert backlog(cluster, "quick") == waiting()

        # When it goes on through another replica, and its engine keeps silent
        engine.fault(silent=True)
        warm = Streams(https[1], 1, session="warm", model="quick", messages=going_on)
        await until(lambda: engine.counters()["active"] == 1, "the second turn under way")

        # Then only what is new waits
        assert backlog(cluster, "quick") == waiting(more)
        # And the same prompt counts in full for a session that has not been there
        cold = Streams(https[2], 1, session="cold", model="quick", messages=going_on)
        await until(lambda: engine.counters()["active"] == 2, "a first turn under way")
        assert backlog(cluster, "quick") == waiting(more, long + more)
        await warm.hang_up()
        await cold.hang_up()
    await until(lambda: backlog(cluster, "quick") == waiting(), "no backlog")


FAULTS: dict[str, dict[str, Any]] = {
    "first_token": {},
    "whole_answer": {},
    "disconnect": {"silent": True},
    "timeout": {"silent": True},
    "cut": {"cut_after_tokens": 0},
    "error_frame": {"error_frame": {"message": "out of memory", "code": 500}},
    "empty": {"empty": True},
}
"""Ends of a prefill, and what makes an engine come to them."""


@pytest.mark.parametrize("end", FAULTS)
async def test_the_backlog_of_a_prompt_ends_with_its_prefill_however_that_ends(
    cluster: Cluster, end: str
) -> None:
    model = "hasty" if end == "timeout" else "m"
    for engine in cluster.engines[:2]:
        if FAULTS[end]:
            engine.fault(**FAULTS[end])
    async with clients(cluster.replicas) as https:
        with Watch(cluster, model):
            # Given long prompts of different sessions, through each replica
            fields = {"model": model, "content": prompt(ELEPHANT), "max_tokens": 10}
            streams = [
                Streams(http, 1, session=f"{end}-{n}", stream=end != "whole_answer", **fields)
                for n, http in enumerate(https)
            ]
            full = waiting(*[ELEPHANT] * 3)
            await until(lambda: backlog(cluster, model) == full, "all in prefill")

            # When that ends
            if end == "disconnect":
                for each in streams:
                    await each.hang_up()
            if end == "first_token":
                for each in streams:
                    await until(each.all_flow, "first tokens")
                # Then with a stream's first token, though it goes on, nothing of it waits
                await until(lambda: backlog(cluster) == waiting(), "no backlog")
                assert len(cluster.claims()) == 3
            answers = [answer for each in streams for answer in await ended(each)]

            # Then nothing waits, and none was left to expire
            await until(lambda: cluster.is_idle(model), "an idle model")
            assert backlog(cluster, model) == waiting()
            assert cluster.reaped(model) == 0
    good = end in ("first_token", "whole_answer", "empty")
    assert all(answer.is_whole is good for answer in answers)


async def test_prompts_that_engines_refuse_at_once_leave_no_backlog(cluster: Cluster) -> None:
    for engine in cluster.engines:
        engine.fault(status=400)
    async with clients(cluster.replicas) as https:
        answers = await asyncio.gather(
            *(
                ask(https[n % 3], prompt(ELEPHANT), session=f"refused-{n}", stream=n % 2 == 0)
                for n in range(60)
            )
        )
    assert {a.status for a in answers} == {400}
    await idle(cluster)
    assert backlog(cluster) == waiting()


async def ended(streams: Streams) -> list[Answer]:
    """How they have gone, also those that were hung up on."""
    return streams.answers if all(t.cancelled() for t in streams.tasks) else await streams.ended()


async def test_the_prefills_of_a_killed_replica_are_gone_and_those_of_others_are_kept(
    cluster: Cluster,
) -> None:
    for engine in cluster.engines:
        engine.fault(silent=True)
    dying, others = cluster.replicas[0], cluster.replicas[1:]
    async with clients(cluster.replicas) as https:
        with Watch(cluster):
            # Given a replica with 20 prefills, half of them elephants, and others with two each
            sizes = [ELEPHANT, ELEPHANT // 2]
            lost = prefills(https[0], sizes * 10)
            kept = [each for http in https[1:] for each in prefills(http, sizes)]
            full, left = waiting(*sizes * 12), waiting(*sizes * 2)
            await until(lambda: backlog(cluster) == full, "all in prefill")

            # When it is killed
            dying.kill()
            killed = time.monotonic()

            # Then what it held is gone, and the rest waits on, renewed for longer than its leases
            await until(lambda: backlog(cluster) == left, "its prefills gone")
            assert time.monotonic() - killed < 1.5 * LEASE_S + 1  # and one for a busy machine
            assert not cluster.claims_of(dying)
            for _ in range(10):
                await asyncio.sleep(LEASE_S / 5)
                assert backlog(cluster) == left
            for each in (*lost, *kept):
                await each.hang_up()
            await until(cluster.is_idle, "an idle model")
    assert all(replica.is_running for replica in others)
    assert cluster.row().keys() <= {"at_ms", "retries"}


def prefills(http: httpx.AsyncClient, sizes: list[int]) -> list[Streams]:
    """A prompt of each size, each of a session of its own."""
    return [
        Streams(http, 1, session=f"{http.base_url}-{n}", content=prompt(size))
        for n, size in enumerate(sizes)
    ]


async def test_a_frozen_replica_counts_again_what_is_still_in_prefill(cluster: Cluster) -> None:
    for engine in cluster.engines:
        engine.fault(silent=True)
    frozen = cluster.replicas[0]
    async with clients(cluster.replicas) as https:
        # Given prefills of a replica
        streams = [Streams(https[0], 1, session=f"f-{n}", content=prompt(ELEPHANT)) for n in (1, 2)]
        full = waiting(ELEPHANT, ELEPHANT)
        await until(lambda: backlog(cluster) == full, "all in prefill")

        # When it stands still for longer than its lease
        frozen.signal(signal.SIGSTOP)
        try:
            await until(lambda: backlog(cluster) == waiting(), "its prefills gone")
        finally:
            frozen.signal(signal.SIGCONT)

        # Then they are counted again, as they were, and end as they should
        await until(lambda: backlog(cluster) == full, "its prefills back")
        for each in streams:
            await each.hang_up()
        await until(cluster.is_idle, "an idle model")
    assert cluster.row().keys() <= {"at_ms", "retries"}


async def test_a_first_token_that_redis_has_forgotten_is_told_again(cluster: Cluster) -> None:
    async with clients(cluster.replicas) as https:
        # Given a stream that has had its first token
        stream = Streams(https[0], 1, content=prompt(ELEPHANT), max_tokens=200)
        await until(lambda: backlog(cluster) == waiting(ELEPHANT), "in prefill")
        row, claimed = cluster.row(), cluster.redis.hgetall("gw:{m:m}:claimed")
        await until(stream.all_flow, "a first token")
        await until(lambda: backlog(cluster) == waiting(), "no backlog")

        # When a failover takes Redis back to before that
        cluster.redis.hset("gw:{m:m}:endpoints", mapping=row)
        cluster.redis.hset("gw:{m:m}:claimed", mapping=claimed)

        # Then its prompt counts for no longer than until leases are renewed, though it goes on
        await until(lambda: backlog(cluster) == waiting(), "no backlog again")
        assert len(cluster.claims()) == 1
        await stream.hang_up()
    await until(cluster.is_idle, "an idle model")
    assert cluster.row().keys() <= {"at_ms", "retries"}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_is_told_how_urgent_a_prompt_is_by_what_it_has_not_cached(
    cluster: Cluster, stream: bool
) -> None:
    engine = cluster.engines[2]
    fields = {"model": "quick", "max_tokens": 1, "stream": stream, "priority": 99}
    async with clients(cluster.replicas) as https:

        async def told(text: str, session: str, replica: int = 0) -> object:
            answer = await ask(https[replica], text, session=session, **fields)
            assert answer.is_whole
            await until(lambda: cluster.is_idle("quick"), "a settled request")
            return engine.counters()["last"]["body"].get("priority", "nothing")

        # When prompts of different size come, each of a new session
        assert await told(prompt(INTERVENE - 1), "small") == 20
        assert await told(prompt(INTERVENE), "large") == 15
        assert await told(prompt(ELEPHANT - 1), "still-large") == 15
        assert await told(prompt(ELEPHANT), "elephant") == 0
        # When one goes on through another replica, then what is cached does not count
        assert await told(prompt(ELEPHANT + 1), "elephant", 1) == 20
        assert await told(prompt(ELEPHANT + 1 + INTERVENE), "elephant", 2) == 15
        # When it does not begin with what is cached, then it all counts, however alike it looks
        other = prompt(ELEPHANT - 1) + prompt(1 + 2 * INTERVENE, "y")
        assert await told(other, "elephant", 1) == 0
        assert await told(prompt(INTERVENE), "elephant", 2) == 15
        # And what another session has cached is not known to be cached for this one
        assert await told(prompt(ELEPHANT + 1), "another", 1) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_priority_of_the_clients_own_reaches_no_engine(
    cluster: Cluster, stream: bool
) -> None:
    async with clients(cluster.replicas) as https:
        for http in https:
            answer = await ask(http, max_tokens=1, stream=stream, priority=99)
            assert answer.is_whole
    bodies = [engine.counters()["last"] for engine in cluster.engines[:2]]
    assert any(bodies)
    for last in bodies:
        assert last is None or "priority" not in last["body"]
