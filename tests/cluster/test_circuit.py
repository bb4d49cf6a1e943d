"""A circuit is the cluster's: whoever saw the failures, all keep off, and one comes to try."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from tests.cluster.harness import ADMIN_KEY, Cluster, Engine, free_port
from tests.cluster.load import Answer, Load, ask, clients, until

COOLDOWN_S = 2.0
ROUTING = {
    "circuit": {"failure_threshold": 3, "cooldown_seconds": COOLDOWN_S},
    "state": {
        "lease_s": 1.5,
        "socket_timeout_ms": 500,
        "heartbeat_s": 0.2,
        "replica_ttl_s": 1.5,
    },
}
FAST = {"ttft_ms": 0, "tokens_per_s": 100000, "output_tokens": 1}


def described(engines: list[Engine]) -> list[dict[str, Any]]:
    """The model `m` on both engines, `solo` on the first alone."""
    routes = [{"kind": "vllm", "base_url": engine.url} for engine in engines]
    return [
        {"id": "m", "name": "M", "provider": "vllm", "route": routes},
        {"id": "solo", "name": "Solo", "provider": "vllm", "route": routes[:1]},
    ]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("circuit"),
        module_redis,
        engines={"engine-a": FAST, "engine-b": FAST},
        models=described,
        routing=ROUTING,
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.reset()
    return shared


async def fail_once_through_each(cluster: Cluster) -> None:
    """Have the first engine answer 500 to one request for `solo` through each replica."""
    cluster.engines[0].fault(status=500, count=3)
    async with clients(cluster.replicas) as https:
        for http in https:
            assert (await ask(http, model="solo")).status == 500


async def cooldown_over(cluster: Cluster, model: str = "solo") -> None:
    """Wait until the open circuit of the first engine may be tried, by the server's clock."""
    opened_ms = int(cluster.row(model)[f"{cluster.engines[0].location}:opened_at_ms"])

    def is_over() -> bool:
        seconds, micros = cluster.redis.time()
        return seconds * 1000 + micros / 1000 > opened_ms + COOLDOWN_S * 1000

    await until(is_over, "the cooldown's end")


async def crowd(
    https: Sequence[httpx.AsyncClient], engine: Engine, *, model: str
) -> tuple[list[Answer], int]:
    """Send 200 requests at once. Returns their answers as they came, and how many requests the
    engine had seen before the first answer of its own came back."""
    answers: list[Answer] = []
    own = f"{model}:{engine.location}"

    async def one(http: httpx.AsyncClient) -> None:
        answers.append(await ask(http, model=model))

    def is_over() -> bool:
        return any(a.status == 200 and a.endpoint == own for a in answers)

    asking = asyncio.gather(*(one(https[n % 3]) for n in range(200)))
    most = 0
    while not is_over() and not asking.done():
        seen = await asyncio.to_thread(lambda: engine.counters()["requests"])
        if not is_over():
            most = max(most, seen)
        await asyncio.sleep(0.05)
    await asking
    return answers, most


async def test_failures_through_different_replicas_open_the_circuit_for_all_at_once(
    cluster: Cluster,
) -> None:
    # Given an engine that fails three times, each time through another replica
    ill, well = cluster.engines
    ill.fault(status=500)
    async with clients(cluster.replicas) as https:
        for http in https:
            failed = await ask(http, pin=f"m:{ill.location}", key=ADMIN_KEY)
            assert failed.status == 500
        assert cluster.row()[f"{ill.location}:circuit"] == "open"

        # When requests come through all replicas
        answers = [await ask(http) for _ in range(5) for http in https]

        # Then none of them goes there any more
        assert {a.status for a in answers} == {200}
        assert {a.endpoint for a in answers} == {f"m:{well.location}"}
        assert ill.counters()["requests"] == 3


async def test_an_open_circuit_without_another_route_is_told_with_the_time_of_the_next_trial(
    cluster: Cluster,
) -> None:
    # Given a model whose only engine has failed once through each replica
    await fail_once_through_each(cluster)

    # When each replica is asked again
    async with clients(cluster.replicas) as https:
        answers = [await ask(http, model="solo") for http in https]

    # Then all say when to come again, and the engine hears nothing of it
    for answer in answers:
        assert (answer.status, answer.code) == (503, "no_healthy_upstream")
        assert answer.retry_after in (1, 2)
        assert "circuit_open" in answer.message
    assert cluster.engines[0].counters()["requests"] == 3


async def test_of_200_requests_after_the_cooldown_one_is_the_trial_and_then_all_may_go(
    cluster: Cluster,
) -> None:
    # Given an open circuit whose cooldown has just ended, and an engine that is well but slow once
    await fail_once_through_each(cluster)
    engine = cluster.engines[0]
    engine.heal(counters=True)
    engine.fault(delay_ms=1500, count=1)
    await cooldown_over(cluster)

    # When 200 requests come through three replicas
    async with clients(cluster.replicas) as https:
        answers, seen_meanwhile = await crowd(https, engine, model="solo")

        # Then the engine sees one while that one lasts, and the others are sent away
        trial = [a.status for a in answers].index(200)
        assert seen_meanwhile == 1
        assert trial > 100
        assert {a.code for a in answers[:trial]} == {"no_healthy_upstream"}
        # And after its success everybody is admitted
        later = await asyncio.gather(*(ask(https[n % 3], model="solo") for n in range(60)))
        assert Counter(a.status for a in later) == {200: 60}
        assert f"{engine.location}:circuit" not in cluster.row("solo")


async def test_while_a_trial_lasts_the_others_take_another_route(cluster: Cluster) -> None:
    # Given an endpoint open to a trial, and a second one
    ill, well = cluster.engines
    ill.fault(status=500, count=3)
    async with clients(cluster.replicas) as https:
        for http in https:
            await ask(http, pin=f"m:{ill.location}", key=ADMIN_KEY)
        ill.heal(counters=True)
        ill.fault(delay_ms=1500, count=1)
        await cooldown_over(cluster, "m")

        # When 200 requests come
        answers, seen_meanwhile = await crowd(https, ill, model="m")

    # Then nobody fails, and all but one are served by the other until the trial has ended
    trial = [a.endpoint for a in answers].index(f"m:{ill.location}")
    assert {a.status for a in answers} == {200}
    assert seen_meanwhile == 1
    assert trial > 100
    assert {a.endpoint for a in answers[:trial]} == {f"m:{well.location}"}


async def test_a_failed_trial_restarts_the_cooldown(cluster: Cluster) -> None:
    # Given an open circuit, and an engine that stays ill
    await fail_once_through_each(cluster)
    engine = cluster.engines[0]
    engine.heal(counters=True)
    engine.fault(status=500)

    # When requests come without pause for a few cooldowns
    started = time.monotonic()
    async with clients(cluster.replicas) as https:
        load = Load(https, workers_each=1, model="solo")
        await until(lambda: engine.counters()["requests"] == 2, "a second trial")
        elapsed_s = time.monotonic() - started
        answers = await load.stop()

    # Then one in each cooldown has reached the engine, through whichever replica
    assert elapsed_s > 1.5 * COOLDOWN_S
    assert Counter(a.status for a in answers if a.status != 503) == {500: 2}


async def test_the_trial_of_a_killed_replica_does_not_keep_the_others_from_trying(
    cluster: Cluster,
) -> None:
    # Given a replica that dies while its request is the trial
    await fail_once_through_each(cluster)
    engine, dying = cluster.engines[0], cluster.replicas[0]
    engine.heal(counters=True)
    engine.fault(delay_ms=30_000, count=1)
    await cooldown_over(cluster)
    async with clients(cluster.replicas) as https:
        trial = asyncio.create_task(ask(https[0], model="solo"))
        await until(lambda: engine.counters()["active"] == 1, "a trial")
        refused = await ask(https[1], model="solo")
        assert (refused.status, "probe_in_flight" in refused.message) == (503, True)
        dying.kill()
        died = time.monotonic()
        with pytest.raises(httpx.TransportError):
            await trial

        # When the others are asked again and again
        load = Load(https[1:], workers_each=1, model="solo")
        await until(lambda: any(a.status == 200 for a in load.answers), "a trial that succeeds")

        # Then one of them may try, after a cooldown or a lease and no later
        assert time.monotonic() - died < COOLDOWN_S + 2
        assert {a.status for a in await load.stop()} == {200, 503}
        await until(lambda: cluster.is_idle("solo"), "an idle model")


async def test_a_replica_that_alone_cannot_connect_keeps_off_and_opens_nothing_for_the_others(
    tmp_path_factory: pytest.TempPathFactory, module_redis: str
) -> None:
    closed = free_port()

    def seen(by_port: int, other: Engine) -> list[dict[str, Any]]:
        near = {"kind": "vllm", "base_url": f"http://127.0.0.1:{by_port}", "location": "near"}
        far = {"kind": "vllm", "base_url": other.url, "location": "far"}
        return [
            {"id": "n", "name": "N", "provider": "vllm", "route": [near, far]},
            {"id": "lone", "name": "Lone", "provider": "vllm", "route": [near]},
        ]

    # Given three replicas, of which the first finds nobody at an endpoint's address
    with Cluster(
        tmp_path_factory.mktemp("apart"),
        module_redis,
        engines={"near": FAST, "far": FAST},
        models=lambda engines: seen(engines[0].port, engines[1]),
        models_of_first=lambda engines: seen(closed, engines[1]),
        routing={**ROUTING, "circuit": {"failure_threshold": 3, "cooldown_seconds": 10}},
    ) as cluster:
        near = cluster.engines[0]
        await until(lambda: len(cluster.live_replicas()) == 3, "three live replicas")
        await asyncio.sleep(0.5)  # a heartbeat later each replica knows of the others
        async with clients(cluster.replicas) as https:
            # When it has failed to connect three times
            for _ in range(3):
                assert (await ask(https[0], model="lone")).status == 502

            # Then it keeps off
            refused = await ask(https[0], model="lone")
            assert (refused.status, refused.code) == (503, "no_healthy_upstream")
            assert "unreachable_from_here" in refused.message
            # And the others do not
            for http in https[1:] * 5:
                assert (await ask(http, model="lone")).status == 200
            assert "near:circuit" not in cluster.row("lone")

            # When there is another route
            mine = [await ask(https[0], model="n") for _ in range(30)]
            theirs = [await ask(http, model="n") for http in https[1:] for _ in range(20)]

            # Then its own requests all go there, and those of the others go both ways
            assert {a.status for a in (*mine, *theirs)} == {200}
            assert {a.endpoint for a in mine} == {"n:far"}
            assert {a.endpoint for a in theirs} == {"n:far", "n:near"}
            lines = cluster.replicas[0].events("request")
            dropped = [line["attempt_log"][0]["dropped"] for line in lines if line["attempts"]]
            assert {"near": "unreachable_from_here"} in dropped

            # When a second replica cannot connect either
            near.kill()
            assert (await ask(https[1], model="lone")).status == 502

            # Then the circuit is open for all
            assert cluster.row("lone")["near:circuit"] == "open"
            last = await ask(https[2], model="lone")
            assert last.status == 503
            assert "circuit_open" in last.message
