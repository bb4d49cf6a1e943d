"""The promise itself: whichever replica a request meets, the answer is the same."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.cluster.harness import ADMIN_KEY, Cluster, body, ids, wait_until

FAST = {"ttft_ms": 0, "tokens_per_s": 100000, "output_tokens": 1}


@pytest.mark.timeout(300)
async def test_shares_follow_the_weights_through_nginx_and_nothing_is_left(
    tmp_path: Path, private_redis: str
) -> None:
    # Given three replicas behind nginx over routes weighted 5:3:2
    weights = {"engine-a": 5, "engine-b": 3, "engine-c": 2}
    with Cluster(
        tmp_path,
        private_redis,
        engines=dict.fromkeys(weights, FAST),
        weights=list(weights.values()),
        nginx=True,
    ) as cluster:
        # When 64 clients send 4,000 requests
        statuses: Counter[int] = Counter()
        shares: Counter[str] = Counter()

        async def client(count: int) -> None:
            async with httpx.AsyncClient(base_url=cluster.url, timeout=30) as http:
                for _ in range(count):
                    answer = await http.post("/v1/chat/completions", json=body())
                    statuses[answer.status_code] += 1
                    shares[answer.headers["x-concord-endpoint"]] += 1

        total = 4_000
        each, rest = divmod(total, 64)
        await asyncio.gather(*(client(each + (n < rest)) for n in range(64)))

        # Then none fails, and each share is within three standard deviations
        assert statuses == {200: total}
        for engine in cluster.engines:
            p = weights[engine.name] / 10
            deviation = math.sqrt(total * p * (1 - p))
            assert abs(shares[f"m:{engine.location}"] - total * p) < 3 * deviation
        # And afterwards there is no claim and nothing in flight in any row
        wait_until(cluster.is_idle, "idle", 5)
        assert all(engine.counters()["active"] == 0 for engine in cluster.engines)


async def test_the_same_request_id_gets_the_same_endpoint_from_every_replica(
    tmp_path: Path, private_redis: str
) -> None:
    # Given three replicas that have seen nothing
    engines = {"a": FAST, "b": FAST, "c": FAST}
    with Cluster(tmp_path, private_redis, engines=engines) as cluster:

        async def endpoints(url: str) -> list[str]:
            async with httpx.AsyncClient(base_url=url, timeout=30) as http:
                drawn = []
                for request_id in ids("same", 1000):
                    headers = {"x-request-id": request_id}
                    answer = await http.post("/v1/chat/completions", json=body(), headers=headers)
                    assert answer.headers["x-request-id"] == request_id
                    drawn.append(answer.headers["x-concord-endpoint"])
                return drawn

        # When each serves the same 1,000 ids
        first, *others = await asyncio.gather(*(endpoints(r.url) for r in cluster.replicas))

        # Then they agree on every one, and on more than one endpoint
        assert all(other == first for other in others)
        assert len(set(first)) == 3


async def test_admin_surfaces_need_an_admin(tmp_path: Path, private_redis: str) -> None:
    with Cluster(tmp_path, private_redis, replicas=1) as cluster:
        async with httpx.AsyncClient(base_url=cluster.url) as http:
            for path in ("/routing", "/health/deep"):
                assert (await http.get(path)).status_code == 403
                key = {"authorization": f"Bearer {ADMIN_KEY}"}
                assert (await http.get(path, headers=key)).status_code == 200
