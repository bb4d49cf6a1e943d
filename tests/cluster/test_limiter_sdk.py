"""OpenAI's SDK behind nginx, in front of an account that takes twelve requests at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI

from tests.cluster.crowded import Crowded
from tests.cluster.harness import ADMIN_KEY, Cluster, Engine

MOST, AT_A_TIME = 12, 30
FAST = {"ttft_ms": 0, "tokens_per_s": 0}


@pytest.fixture(scope="module")
def crowded() -> Iterator[Crowded]:
    with Crowded(MOST, takes_s=0.2).listening() as provider:
        yield provider


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, module_redis: str, crowded: Crowded
) -> Iterator[Cluster]:
    def models(_: list[Engine]) -> list[dict[str, Any]]:
        route = {"kind": "vllm", "base_url": crowded.url, "api_key": "sk-of-the-account"}
        return [{"id": "m", "name": "M", "provider": "acme", "route": [route]}]

    with Cluster(
        tmp_path_factory.mktemp("limiter"),
        module_redis,
        engines={"unused": FAST},
        models=models,
        # The limit is not to rise again while the test runs.
        routing={
            "upstream_concurrency": {"initial": 16, "success_interval": 100_000},
            "state": {"socket_timeout_ms": 1000},
            "circuit": {"failure_threshold": 100_000, "min_availability": 0},
        },
        nginx=True,
    ) as cluster:
        yield cluster


async def statuses(cluster: Cluster, count: int) -> Counter[int]:
    """What clients get that do not try again."""
    async with AsyncOpenAI(
        base_url=f"{cluster.url}/v1", api_key="sk-any", max_retries=0, timeout=60
    ) as sdk:
        room = asyncio.Semaphore(AT_A_TIME)

        async def ask() -> int:
            async with room:
                try:
                    await sdk.chat.completions.create(
                        model="m", messages=[{"role": "user", "content": "hi"}]
                    )
                except APIStatusError as error:
                    return error.status_code
                return 200

        return Counter(await asyncio.gather(*(ask() for _ in range(count))))


async def test_no_client_sees_a_429_once_the_limit_has_been_learned(
    cluster: Cluster, crowded: Crowded
) -> None:
    learning = await statuses(cluster, 100)
    assert set(learning) <= {200, 429}
    assert crowded.refused > 0
    async with httpx.AsyncClient(headers={"x-api-key": ADMIN_KEY}) as http:
        told = await http.get(f"{cluster.replicas[0].url}/admin/upstream-concurrency")
    [bucket] = told.json()["buckets"]
    assert 1 <= bucket["limit"] <= MOST
    crowded.refused = 0

    assert await statuses(cluster, 300) == {200: 300}
    assert (crowded.refused, crowded.most_active <= MOST) == (0, True)
