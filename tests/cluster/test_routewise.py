"""RouteWise across replicas: quotas and places that models share hold exactly, and what one replica
has seen all know."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.harness import ADMIN_KEY, HTTP, Cluster, Engine, wait_until

QUOTA, REQUESTS, PLACES = 500, 2000, 4
SOURCE = {"provider": "local", "usage_label": "requests", "unit": "day"}
PRICING = {"prompt": "3", "completion": "12"}
FAST = {"ttft_ms": 1, "tokens_per_s": 100_000, "output_tokens": 4}
PARAMS = {"budget_alpha": 0, "output_default_tokens": 4}


def models(engines: list[Engine], limited: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Two models on the same two engines: one of a plan that they share, one on demand."""
    plan, paid = engines
    routes = [
        {"location": "plan", "kind": "vllm", "base_url": plan.url, **limited},
        {"location": "paid", "kind": "vllm", "base_url": paid.url, "pricing": PRICING},
    ]
    return [
        {
            "id": id,
            "name": id,
            "provider": "vllm",
            "router": "routewise",
            "router_params": PARAMS,
            "route": routes,
        }
        for id in ("m", "n")
    ]


def make(folder: Path, redis_url: str, limited: Mapping[str, Any], **engine: object) -> Cluster:
    return Cluster(
        folder,
        redis_url,
        engines={name: {**FAST, **engine} for name in ("plan", "paid")},
        models=lambda engines: models(engines, limited),
        routing={"state": {"socket_timeout_ms": 2000}},
        coordinators=1,
    )


@pytest.fixture
def coordinated(tmp_path: Path, private_redis: str) -> Iterator[Any]:
    """Starts a cluster."""
    with ExitStack() as stack:

        def start(limited: Mapping[str, Any], **engine: object) -> Cluster:
            return stack.enter_context(make(tmp_path, private_redis, limited, **engine))

        yield start


async def ask_all(cluster: Cluster, count: int, at_a_time: int) -> list[int]:
    """Send requests for both models through all replicas, so many at a time; their statuses."""
    places = asyncio.Semaphore(at_a_time)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)

    async with httpx.AsyncClient(timeout=60, limits=limits) as client:

        async def ask(number: int) -> int:
            replica = cluster.replicas[number % len(cluster.replicas)]
            body = {
                "model": "mn"[number % 2],
                "messages": [{"role": "user", "content": "word " * 100}],
            }
            async with places:
                answer = await client.post(f"{replica.url}/v1/chat/completions", json=body)
            return answer.status_code

        return list(await asyncio.gather(*(ask(number) for number in range(count))))


def shares(cluster: Cluster, model: str) -> dict[str, float]:
    """Of the mixture, as every replica tells it; nothing while they differ."""
    told = []
    for replica in cluster.replicas:
        answer = HTTP.get(
            f"{replica.url}/admin/routing/explain",
            params={"model": model, "prompt_tokens": 125},
            headers={"authorization": f"Bearer {ADMIN_KEY}"},
        )
        candidates = answer.raise_for_status().json()["candidates"]
        told.append({one["endpoint"].partition(":")[2]: one["share"] for one in candidates})
    return told[0] if all(one == told[0] for one in told) else {}


@pytest.mark.timeout(300)
async def test_a_quota_that_models_share_is_used_up_exactly(coordinated: Any) -> None:
    # Given a quota whose worth is known
    limited = {
        "provider_type": "quota",
        "quota": {"limit": QUOTA},
        "quota_source": SOURCE,
        "quota_pool": "team-plan",
    }
    cluster = coordinated(limited)
    plan, paid = cluster.engines
    assert set(await ask_all(cluster, 20, 4)) == {200}
    assert plan.counters()["requests"] == 0, "used although nobody knew what it was worth"
    wait_until(lambda: shares(cluster, "m") == {"plan": 1, "paid": 0}, "the quota in use", 40)
    wait_until(lambda: shares(cluster, "n") == {"plan": 1, "paid": 0}, "and by both models", 40)

    # When more requests come than it has, through all replicas
    statuses = await ask_all(cluster, REQUESTS, 32)

    # Then all are answered, and not one more than it has goes there
    assert set(statuses) == {200}
    assert plan.counters()["requests"] == QUOTA
    assert paid.counters()["requests"] == 20 + REQUESTS - QUOTA
    assert cluster.redis.zcard("gw:{q:team-plan}:taken") == QUOTA


@pytest.mark.timeout(300)
async def test_an_engine_never_sees_more_requests_than_its_pool_has_places(
    coordinated: Any,
) -> None:
    # Given an engine that is free of charge, four at a time, for both models
    limited = {
        "provider_type": "concurrency",
        "concurrency": {"limit": PLACES},
        "concurrency_pool": "team-places",
    }
    cluster = coordinated(limited, ttft_ms=20)
    plan, paid = cluster.engines

    # When many more come at a time
    statuses = await ask_all(cluster, 600, 24)

    # Then it is busy, never more than that, and nothing is held in the end
    assert set(statuses) == {200}
    assert plan.counters()["max_active"] == PLACES
    assert paid.counters()["requests"] + plan.counters()["requests"] == 600
    wait_until(
        lambda: cluster.redis.zcard("gw:{q:team-places}:places") == 0, "all places given back"
    )
    wait_until(lambda: cluster.is_idle("m") and cluster.is_idle("n"), "no claims")


@pytest.mark.timeout(300)
async def test_places_of_a_replica_that_was_killed_come_back(coordinated: Any) -> None:
    limited = {
        "provider_type": "concurrency",
        "concurrency": {"limit": PLACES},
        "concurrency_pool": "team-places",
    }
    cluster = coordinated(limited, ttft_ms=60_000)
    first = cluster.replicas[0]
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"{first.url}/v1/chat/completions"
        asked = [asyncio.create_task(client.post(url, json=body)) for _ in range(PLACES)]
        await asyncio.to_thread(
            wait_until, lambda: cluster.engines[0].counters()["active"] == PLACES, "all places"
        )
        first.kill()
        await asyncio.wait(asked)

    # Nobody renews them any more, and the others do not wait for a coordinator to say so.
    def is_free() -> bool:
        now_ms = int(cluster.redis.time()[0]) * 1000
        return cluster.redis.zcount("gw:{q:team-places}:places", now_ms, "+inf") == 0

    wait_until(is_free, "the places of the dead", 30)
