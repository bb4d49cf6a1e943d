"""Streams that stall are asked of a second endpoint, across replicas: real engines, real Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from gateway.core.profile import Profile, Speed
from gateway.state.profiles import write_profile
from tests.cluster.harness import HTTP, Cluster, Engine, Replica, body, wait_until
from tests.cluster.load import ask, clients, idle, until

FLOOR = 20
"""So many hedges there may be in any case."""
BRIEF: dict[str, Any] = {"content": "word " * 100, "stream": True, "max_tokens": 2}


def quick(ms: float) -> Speed:
    return Speed(mean_ms=ms, source="profile", count=101, cdf_ms=(ms,) * 101)


def models(engines: list[Engine]) -> list[dict[str, Any]]:
    """The fastest gets all. Beside it `m` has one that takes a request at a time, free of charge,
    and one that is paid; `n` has that alone."""
    first, place, paid = engines
    free = {"provider_type": "concurrency", "concurrency": {"limit": 1}, "concurrency_pool": "one"}
    routes = [
        {"location": "first", "base_url": first.url, "pricing": {"prompt": "9"}},
        {"location": "place", "base_url": place.url, **free},
        {"location": "paid", "base_url": paid.url, "pricing": {"prompt": "1"}},
    ]
    params = {
        "budget_alpha": 1,
        "latency_slo_sec": 0.4,
        "latency_hedge_mode": "probability_target",
    }
    return [
        {
            "id": id,
            "name": id,
            "provider": "vllm",
            "router": "routewise",
            "router_params": params,
            "route": [{"kind": "vllm", **one} for one in of],
        }
        for id, of in {"m": routes, "n": [routes[0], routes[2]]}.items()
    ]


def publish(cluster: Cluster) -> None:
    """Let all replicas know what no coordinator says: all endpoints are quick, one the quickest."""
    speeds = {"first": quick(5), "place": quick(50), "paid": quick(50)}
    text = write_profile(Profile(speeds=speeds))
    for model in "mn":
        key = f"gw:{{m:{model}}}:profile"
        cluster.redis.set(key, f"epoch=1 at_ms={round(time.time() * 1000)} {text}")


@pytest.fixture(scope="module")
def hedging(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    """Two replicas."""
    engine = {"ttft_ms": 1, "tokens_per_s": 20, "output_tokens": 600}
    with Cluster(
        tmp_path_factory.mktemp("hedging"),
        module_redis,
        engines=dict.fromkeys(("first", "place", "paid"), engine),
        models=models,
        routing={
            "retry_budget": {"percent": 0, "floor": FLOOR},
            "circuit": {"failure_threshold": 100},
        },
        replicas=2,
    ) as cluster:
        publish(cluster)
        for replica in cluster.replicas:
            for model in "mn":
                wait_until(partial(knows, replica, model), f"{replica.name} knows the profile")
        yield cluster


def knows(replica: Replica, model: str) -> bool:
    """Whether requests go to the quickest: who knows nothing takes the cheapest."""
    asked = {**body(BRIEF["content"], max_tokens=1), "model": model}
    answer = HTTP.post(f"{replica.url}/v1/chat/completions", json=asked)
    return answer.headers["x-concord-endpoint"] == f"{model}:first"


@pytest.fixture
def cluster(hedging: Cluster) -> Cluster:
    """With all that earlier tests did to it made good, their failovers forgotten."""
    hedging.reset()  # what they have read of profiles, replicas keep
    return hedging


async def test_a_stalled_stream_is_answered_by_another_endpoint_and_cut_off(
    cluster: Cluster,
) -> None:
    first, _, paid = cluster.engines
    first.fault(silent=True)

    # When streams stall, more than the free endpoint has a place for
    async with clients(cluster.replicas) as https:
        answers = await asyncio.gather(*(ask(http, **BRIEF) for http in https for _ in range(3)))

    # Then others answer all of them, one after the other where there is one place
    assert all(one.is_whole and one.tokens == 2 for one in answers)
    assert {one.attempts for one in answers} == {2}
    assert {one.endpoint for one in answers} == {"m:place", "m:paid"}
    assert cluster.engines[1].counters()["max_active"] == 1
    # And their engine has seen them go, and is not to blame
    await idle(cluster)
    assert first.counters()["cancelled"] == len(answers)
    assert paid.counters()["cancelled"] == 0
    assert "first:failures" not in cluster.row()
    assert cluster.reaped() == 0
    assert not cluster.redis.zcard("gw:{q:one}:places")


async def test_the_second_is_cut_off_when_the_first_answers(cluster: Cluster) -> None:
    first, place, _ = cluster.engines
    first.fault(delay_ms=1000)
    place.fault(silent=True)

    async with clients(cluster.replicas[:1]) as (http,):
        answer = await ask(http, **BRIEF)

    assert (answer.is_whole, answer.endpoint, answer.attempts) == (True, "m:first", 2)
    await idle(cluster)
    assert (first.counters()["cancelled"], place.counters()["cancelled"]) == (0, 1)
    assert not {"first:failures", "place:failures"} & cluster.row().keys()


async def test_a_second_that_has_failed_is_to_blame_although_the_first_answers(
    cluster: Cluster,
) -> None:
    first, place, _ = cluster.engines
    first.fault(delay_ms=1000)
    place.fault(status=500)

    async with clients(cluster.replicas[:1]) as (http,):
        answer = await ask(http, **BRIEF)

    assert (answer.is_whole, answer.endpoint) == (True, "m:first")
    await idle(cluster)
    assert cluster.row()["place:failures"] == "1"


async def test_when_both_fail_the_request_fails_over_as_usual(cluster: Cluster) -> None:
    first, place, paid = cluster.engines
    first.fault(delay_ms=1000, count=1)
    place.fault(status=500)
    async with clients(cluster.replicas[:1]) as (http,):
        asking = asyncio.create_task(ask(http, **BRIEF))
        await until(lambda: "place:failures" in cluster.row(), "the second has failed")
        first.kill()
        answer = await asking

    assert (answer.is_whole, answer.engine, answer.attempts) == (True, "paid", 3)
    await idle_but(cluster, first)
    assert paid.counters()["requests"] == 1


async def test_a_client_that_leaves_frees_both(cluster: Cluster) -> None:
    first, place, _ = cluster.engines
    for engine in (first, place):
        engine.fault(silent=True)
    async with clients(cluster.replicas[:1]) as (http,):
        asking = asyncio.create_task(ask(http, **BRIEF))
        await until(lambda: place.counters()["active"] == 1, "both are asked")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await idle(cluster)

    assert (first.counters()["cancelled"], place.counters()["cancelled"]) == (1, 1)
    assert not {"first:failures", "place:failures"} & cluster.row().keys()
    assert cluster.reaped() == 0


async def test_no_second_is_asked_beyond_the_budget_of_failover(cluster: Cluster) -> None:
    first, _, paid = cluster.engines
    first.fault(delay_ms=1000)

    async with clients(cluster.replicas) as https:
        asked = [ask(http, model="n", **BRIEF) for http in https for _ in range(FLOOR)]
        answers = await asyncio.gather(*asked)

    assert all(one.is_whole for one in answers)
    assert [one.attempts for one in answers].count(2) == FLOOR
    assert paid.counters()["requests"] == FLOOR
    assert first.counters()["requests"] == len(answers)


async def idle_but(cluster: Cluster, dead: Engine) -> None:
    """Wait until nothing is left, an engine being down."""
    await until(cluster.is_idle, "an idle model", 10)
    dead.start()
    await until(dead.is_up, "it is up again")
