"""A client that leaves, at whichever moment, frees its engine and its claim."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.cluster.harness import Cluster
from tests.cluster.load import Watch, ask, clients, idle, until


@pytest.mark.parametrize("when", ["silence", "mid_stream", "whole", "failing_over"])
async def test_a_client_that_leaves_frees_the_engine_and_the_claim(
    cluster: Cluster, when: str
) -> None:
    # Given requests of three clients, each of another replica, under way
    first, second = cluster.engines
    fields: dict[str, object] = {"stream": when != "whole"}
    if when == "silence":
        first.fault(silent=True)
        second.fault(silent=True)
    if when == "failing_over":
        first.fault(status=503)
        second.fault(delay_ms=20_000)
    async with clients(cluster.replicas) as https:
        tasks = [asyncio.create_task(ask(http, **fields)) for http in https for _ in range(5)]

        def engaged() -> int:
            return sum(engine.counters()["active"] for engine in cluster.engines)

        await until(lambda: engaged() == 15, "all under way")
        if when == "mid_stream":
            await until(lambda: len(firsts(cluster)) == 15, "first tokens")

        # When the clients hang up
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        # Then within a second or so the engines are free and have noticed why
        await until(lambda: engaged() == 0, "free engines", 2)
        assert sum(engine.counters()["cancelled"] for engine in cluster.engines) == 15
        # And nothing is held
        await until(cluster.is_idle, "an idle model", 2)
        assert cluster.reaped() == 0
    # And it says nothing against the endpoints
    if when == "failing_over":
        assert f"{second.location}:failures" not in cluster.row()
    else:
        assert cluster.row().keys() <= {"at_ms", "retries"}
    lines = [line for r in cluster.replicas for line in r.events("request")][-15:]
    assert any(line["client_cancelled"] for line in lines)


def firsts(cluster: Cluster) -> list[str]:
    """What is held by attempts that have had their first output."""
    return [text for text in cluster.redis.hvals("gw:{m:m}:claimed") if "first=1" in text]


async def test_a_client_that_leaves_at_any_moment_while_endpoints_fail_leaves_nothing(
    cluster: Cluster,
) -> None:
    # Given one endpoint that fails at once, so that each request may be between two attempts
    cluster.engines[0].fault(status=503)
    cluster.engines[1].fault(delay_ms=200)
    async with clients(cluster.replicas) as https:
        with Watch(cluster):
            # When 90 clients leave, each a little later than the one before
            for wave in range(3):
                tasks = [asyncio.create_task(ask(https[n % 3], stream=True)) for n in range(30)]
                for n, task in enumerate(tasks):
                    await asyncio.sleep(0.002 * wave + 0.0005 * n)
                    task.cancel()
                for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                    assert isinstance(outcome, (asyncio.CancelledError, httpx.HTTPError))

            # Then nothing is left
            await idle(cluster)
            assert cluster.reaped() == 0
