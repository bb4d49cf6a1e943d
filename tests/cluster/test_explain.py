"""What one replica explains of a request id is what any of them then does with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from gateway.protocols.token_estimate import estimate_tokens
from tests.cluster.harness import ADMIN_KEY, Cluster, Engine, body, ids
from tests.cluster.load import ask, clients, until
from tests.fakes.builders import chat

FAST = {"ttft_ms": 0, "tokens_per_s": 100000, "output_tokens": 1}
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
AT_ONCE = 8
PROMPT_TOKENS = estimate_tokens(chat("hi", max_tokens=50))
ANSWERS = 50
"""How many tokens an answer may have, where that is asked for."""


def models(engines: list[Engine]) -> list[dict[str, Any]]:
    """`m` is drawn; of `limited` the endpoints may serve five requests, two, and three at most."""
    limits = ({"rpm": 5}, {"rpm": 2, "itpm": 100_000}, {"rpm": 3, "tpm": PROMPT_TOKENS + ANSWERS})
    routes = [
        {"kind": "vllm", "base_url": engine.url, "weight": weight}
        for engine, weight in zip(engines, (5, 3, 2), strict=True)
    ]
    limited = [{**route, **limit} for route, limit in zip(routes, limits, strict=True)]
    return [
        {"id": id, "name": id, "provider": "vllm", "route": listed}
        for id, listed in (("m", routes), ("limited", limited))
    ]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("explain"),
        module_redis,
        engines={"engine-a": FAST, "engine-b": FAST, "engine-c": FAST},
        models=models,
        # On two cores the processes take turns, and a turn can last longer than the usual timeout.
        # And what has been taken of a limit stays so for longer than any test lasts.
        routing={"state": {"socket_timeout_ms": 1000}, "limits": {"window_seconds": 600}},
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.reset()
    return shared


async def explain(http: httpx.AsyncClient, **question: str) -> dict[str, Any]:
    params = {"model": "m", **question}
    answer = await http.get("/admin/routing/explain", params=params, headers=ADMIN)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def told(https: Sequence[httpx.AsyncClient], asked: Sequence[str]) -> list[str | None]:
    """Where each id is said to go, by the replicas in turn."""

    async def one(n: int) -> str | None:
        async with turn:
            return (await explain(https[n % len(https)], request_id=asked[n]))["drawn"]

    turn = asyncio.Semaphore(AT_ONCE)
    return list(await asyncio.gather(*map(one, range(len(asked)))))


async def served(http: httpx.AsyncClient, asked: Sequence[str]) -> list[str | None]:
    """Where each id goes that comes to this replica."""

    async def one(request_id: str) -> str | None:
        async with turn:
            headers = {"x-request-id": request_id}
            answer = await http.post("/v1/chat/completions", json=body(), headers=headers)
            assert answer.headers["x-request-id"] == request_id
            return answer.headers.get("x-concord-endpoint")

    turn = asyncio.Semaphore(AT_ONCE)
    return list(await asyncio.gather(*map(one, asked)))


@pytest.mark.timeout(300)
async def test_a_thousand_ids_go_where_explain_has_said_through_each_replica(
    cluster: Cluster,
) -> None:
    asked = list(ids("explained", 1000))
    async with clients(cluster.replicas) as https:
        # When each is explained, and then comes to every replica
        before = await told(https, asked)
        through = [await served(http, asked) for http in https]
        # Then it goes there, whichever replica it meets
        assert all(seen == before for seen in through)
        shares = Counter(before)
        assert 430 < shares[f"m:{cluster.engines[0].location}"] < 570
        assert len(shares) == 3
        # And replaying the old ids tells the same
        assert await told(https, asked) == before


async def test_what_has_changed_since_is_told_and_done(cluster: Cluster) -> None:
    asked = list(ids("changed", 100))
    first, second, third = (f"m:{engine.location}" for engine in cluster.engines)
    async with clients(cluster.replicas) as https:
        before = await told(https, asked)
        # Given one endpoint whose circuit has opened, and another whose weight an operator has
        # changed
        cluster.engines[0].fault(status=500)
        for http in https:
            assert (await ask(http, pin=first, key=ADMIN_KEY)).status == 500
        change = await https[1].put(
            f"/admin/routing/weights/m/{second}", json={"weight": 0.5}, headers=ADMIN
        )
        # When the same ids are explained and come again
        now = await told(https, asked)
        # Then they are told to go elsewhere, and do
        assert set(before) == {first, second, third}
        assert set(now) == {second, third}
        assert [await served(http, asked) for http in https] == [now] * 3
        found = await explain(https[2], request_id=asked[0])
        assert found["epoch"] == change.json()["epoch"]
        reasons = {one["endpoint"]: (one["reason"], one["share"]) for one in found["candidates"]}
        assert reasons == {first: ("circuit_open", 0), second: (None, 0.2), third: (None, 0.8)}


async def test_each_replica_explains_alike_and_changes_nothing(cluster: Cluster) -> None:
    async with clients(cluster.replicas) as https:
        await ask(https[0])
        before = {key: cluster.redis.dump(key) for key in cluster.redis.keys("gw:{m:*")}
        found = [
            await explain(http, request_id="alike", caller="ip:127.0.0.1")
            for http in (*https, *https)
        ]
        for one, replica in zip(found, cluster.replicas * 2, strict=True):
            assert one.pop("replica") == replica.id
        assert all(one == found[0] for one in found)
        assert {key: cluster.redis.dump(key) for key in cluster.redis.keys("gw:{m:*")} == before


async def test_limits_are_told_and_reserved_alike_until_all_are_taken(cluster: Cluster) -> None:
    size = {"prompt_tokens": str(PROMPT_TOKENS), "max_tokens": str(ANSWERS)}
    served: Counter[str | None] = Counter()
    async with clients(cluster.replicas) as https:
        for n, request_id in enumerate(ids("limited", 12)):
            # When a request is explained by one replica, and comes to the next
            told = await explain(https[n % 3], model="limited", request_id=request_id, **size)
            answer = await https[(n + 1) % 3].post(
                "/v1/chat/completions",
                json=body(model="limited", max_tokens=ANSWERS),
                headers={"x-request-id": request_id},
            )
            await until(lambda: cluster.is_idle("limited"), "what was reserved is settled")
            # Then it goes there, or is refused as it was told
            if told["drawn"]:
                assert answer.headers["x-concord-endpoint"] == told["drawn"]
            else:
                assert answer.status_code == 429
                assert answer.json()["error"]["message"] == told["refused"]
                assert int(answer.headers["retry-after"]) >= 1
            served[told["drawn"]] += 1
        first, second, third = (f"limited:{engine.location}" for engine in cluster.engines)
        left = {
            (one["endpoint"], limit["limit"]): limit["left"]
            for one in (await explain(https[0], model="limited"))["candidates"]
            for limit in one["limits"]
        }
    assert (served[first], served[second]) == (5, 2)
    assert 1 <= served[third] <= 3
    assert served[None] == 12 - 7 - served[third]
    assert (left[first, "rpm"], left[second, "rpm"]) == (0, 0)
    assert left[second, "itpm"] < 100_000
    assert left[third, "tpm"] < PROMPT_TOKENS + ANSWERS


async def test_an_endpoint_that_pauses_is_left_alone_as_told_through_each_replica(
    cluster: Cluster,
) -> None:
    # Given an endpoint that pauses
    first, second, third = (f"m:{engine.location}" for engine in cluster.engines)
    now_ms = cluster.redis.time()[0] * 1000
    pause = f"until_ms={now_ms + 120_000} length_ms=120000 reason=retry_after"
    cluster.redis.hset("gw:{m:m}:endpoints", f"{cluster.engines[0].location}:cooldown", pause)
    asked = list(ids("paused", 60))
    async with clients(cluster.replicas) as https:
        # When requests are explained, and come to every replica
        now = await told(https, asked)
        through = [await served(http, asked) for http in https]
        found = await explain(https[1], request_id=asked[0])
    # Then they go elsewhere, as told
    assert set(now) == {second, third}
    assert through == [now] * 3
    paused = {one["endpoint"]: one for one in found["candidates"]}[first]
    assert (paused["reason"], paused["cooldown"]["reason"]) == ("cooldown", "retry_after")
    assert 0 < paused["cooldown"]["left_s"] <= 120
    assert "cooldown" not in paused["holds"]
