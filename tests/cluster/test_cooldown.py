"""A pause is the cluster's: whoever has met the reason, everybody's next request goes elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster.harness import ADMIN_KEY, Cluster, Engine
from tests.cluster.load import Answer, ask, clients

ROUTING = {
    "circuit": {"failure_threshold": 3, "cooldown_seconds": 60},
    "retry_budget": {"enabled": False},
    "max_cooldown": 3600,
}
FAST = {"ttft_ms": 0, "tokens_per_s": 100000, "output_tokens": 1}
POLICIES = pytest.mark.parametrize("model", ["hybrid", "litellm"])


def described(engines: list[Engine]) -> list[dict[str, Any]]:
    """Models on both engines by the names of their policies, and two special ones."""
    routes = [{"kind": "vllm", "base_url": engine.url} for engine in engines]
    named = {
        "hybrid": {"route": routes},
        "litellm": {"route": routes, "cooldown_policy": "litellm"},
        "solo": {"route": routes[:1], "cooldown_policy": "litellm"},
        "never": {"route": [{**routes[0], "cooldown_time": 0}, routes[1]]},
        "allowing": {"route": routes, "cooldown_time": 600, "allowed_fails": 3},
    }
    return [{"id": id, "name": id, "provider": "vllm", **keys} for id, keys in named.items()]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("cooldown"),
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


async def fail(
    http: httpx.AsyncClient,
    engine: Engine,
    model: str,
    status: int = 429,
    **headers: str,
) -> Answer:
    """Have one request through a replica fail at an engine."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    engine.fault(status=status, headers=named, count=1)
    answer = await ask(http, model=model, pin=f"{model}:{engine.location}", key=ADMIN_KEY)
    assert answer.status == status
    return answer


def pause(cluster: Cluster, engine: Engine, model: str) -> dict[str, str]:
    """What stands of an engine's pause; empty when it has none."""
    text = cluster.row(model).get(f"{engine.location}:cooldown", "")
    return dict(word.split("=") for word in text.split())


def left_s(cluster: Cluster, engine: Engine, model: str) -> float:
    """For how long an engine pauses yet, by the server's clock."""
    seconds, micros = cluster.redis.time()
    until_ms = int(pause(cluster, engine, model)["until_ms"])
    return until_ms / 1000 - seconds - micros / 1e6


@POLICIES
async def test_made_through_one_replica_is_in_force_for_the_next_request_through_any_other(
    cluster: Cluster, model: str
) -> None:
    # Given a pause that one replica's request has brought about
    paused, other = cluster.engines
    async with clients(cluster.replicas) as https:
        for first in https:
            cluster.redis.delete(f"gw:{{m:{model}}}:endpoints")
            paused.heal(counters=True)
            told = await fail(first, paused, model, retry_after="600")
            assert told.retry_after == 600

            # When requests come, first of all through the other replicas
            others = [http for http in https if http is not first]
            answers = [await ask(http, model=model) for http in (*others, first) * 8]

            # Then none goes there
            assert {answer.status for answer in answers} == {200}
            assert {answer.endpoint for answer in answers} == {f"{model}:{other.location}"}
            assert {answer.attempts for answer in answers} == {1}
            assert paused.counters()["requests"] == 1


@POLICIES
async def test_a_longer_one_replaces_a_shorter_one_and_never_the_reverse(
    cluster: Cluster, model: str
) -> None:
    engine = cluster.engines[0]
    async with clients(cluster.replicas) as https:
        await fail(https[0], engine, model, retry_after="300")
        first = pause(cluster, engine, model)
        assert first["length_ms"] == "300000"

        await fail(https[1], engine, model, retry_after="5")
        assert pause(cluster, engine, model) == first

        await fail(https[2], engine, model, retry_after_ms="900500")
        assert pause(cluster, engine, model)["length_ms"] == "900500"
        assert left_s(cluster, engine, model) > 600


@POLICIES
async def test_when_all_endpoints_pause_clients_are_told_when_the_first_is_back(
    cluster: Cluster, model: str
) -> None:
    # Given endpoints that pause for different times
    soon, late = cluster.engines
    async with clients(cluster.replicas) as https:
        await fail(https[0], late, model, retry_after="600")
        await fail(https[1], soon, model, retry_after="200.5")

        # When each replica is asked
        for http in https:
            before_s = left_s(cluster, soon, model)
            answer = await ask(http, model=model)

            # Then it tells the time that is left of the shorter pause, and asks no engine
            assert (answer.status, answer.code) == (429, "rate_limit_exceeded")
            assert "2 cooldown" in answer.message
            after_s = left_s(cluster, soon, model)
            assert math.ceil(after_s) <= answer.retry_after <= math.ceil(before_s)
    assert [engine.counters()["requests"] for engine in cluster.engines] == [1, 1]


async def test_a_request_that_meets_refusals_everywhere_tries_each_endpoint_once(
    cluster: Cluster,
) -> None:
    for engine in cluster.engines:
        engine.fault(status=429, headers={"retry-after": "600"})
    async with clients(cluster.replicas) as https:
        first = await ask(https[0], model="litellm")
        assert (first.status, first.attempts) == (429, 2)

        later = [await ask(http, model="litellm") for http in https]

    assert {answer.status for answer in later} == {429}
    assert [engine.counters()["requests"] for engine in cluster.engines] == [1, 1]


@pytest.mark.parametrize(("model", "opens"), [("hybrid", True), ("litellm", False)])
async def test_a_refusal_for_haste_counts_to_the_circuit_of_the_hybrid_policy_alone(
    cluster: Cluster, model: str, opens: bool
) -> None:
    engine = cluster.engines[0]
    async with clients(cluster.replicas) as https:
        for http in https:
            await fail(http, engine, model)

    row = cluster.row(model)
    assert (row.get(f"{engine.location}:circuit") == "open") == opens
    assert (f"{engine.location}:failures" in row) == opens
    assert bool(pause(cluster, engine, model)) != opens, "without a Retry-After hybrid has none"


async def test_failures_through_different_replicas_add_up(cluster: Cluster) -> None:
    # Given three failures through one replica and one through another
    engine = cluster.engines[0]
    async with clients(cluster.replicas) as https:
        for http in (https[0], https[0], https[0], https[1]):
            await fail(http, engine, "litellm", status=500)
        assert not pause(cluster, engine, "litellm")

        # When a third replica sees a fifth
        await fail(https[2], engine, "litellm", status=500)

        # Then the endpoint pauses
        assert pause(cluster, engine, "litellm")["reason"] == "http_500"
        assert pause(cluster, engine, "litellm")["length_ms"] == "5000"


async def test_successes_through_other_replicas_weigh_against_failures(cluster: Cluster) -> None:
    engine = cluster.engines[0]
    here = {"model": "litellm", "pin": f"litellm:{engine.location}", "key": ADMIN_KEY}
    async with clients(cluster.replicas) as https:
        for stream in (False, True, False, True, False):
            assert (await ask(https[0], stream=stream, **here)).status == 200
        for http in (https[1], https[2], https[1], https[2], https[1]):
            await fail(http, engine, "litellm", status=503)
        assert not pause(cluster, engine, "litellm")

        await fail(https[0], engine, "litellm", status=503)
        assert pause(cluster, engine, "litellm")["reason"] == "http_503"


async def test_allowed_fails_are_counted_in_the_whole_cluster(cluster: Cluster) -> None:
    engine = cluster.engines[0]
    async with clients(cluster.replicas) as https:
        for http in https:
            await fail(http, engine, "allowing")
            assert not pause(cluster, engine, "allowing")

        await fail(https[0], engine, "allowing", status=500)
        assert pause(cluster, engine, "allowing")["length_ms"] == "600000"


async def test_the_only_endpoint_goes_on_serving(cluster: Cluster) -> None:
    engine = cluster.engines[0]
    async with clients(cluster.replicas) as https:
        await fail(https[0], engine, "solo", retry_after="600")

        answers = [await ask(http, model="solo") for http in https]

    assert {answer.status for answer in answers} == {200}


async def test_an_endpoint_with_a_time_of_zero_never_pauses(cluster: Cluster) -> None:
    engine, other = cluster.engines
    async with clients(cluster.replicas) as https:
        for http in https:
            await fail(http, engine, "never", retry_after="600")
            await fail(http, other, "never", retry_after="600")

        answers = [await ask(http, model="never") for http in https]

    assert {answer.endpoint for answer in answers} == {f"never:{engine.location}"}


async def test_an_upstream_may_not_ask_for_more_than_is_granted(cluster: Cluster) -> None:
    engine = cluster.engines[0]
    async with clients(cluster.replicas) as https:
        await fail(https[0], engine, "hybrid", retry_after="86400")

    assert pause(cluster, engine, "hybrid")["length_ms"] == "3600000"
