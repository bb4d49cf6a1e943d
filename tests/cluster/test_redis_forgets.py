"""Redis loses its scripts, its connections or all it knew: no client gets to feel it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

from tests.cluster.conftest import LEASE_S, PER_S
from tests.cluster.harness import Cluster
from tests.cluster.load import Load, Streams, Watch, clients, idle, until

SHORT = {"max_tokens": 1}


@contextlib.asynccontextmanager
async def repeatedly(act: Callable[[], object], every_s: float) -> AsyncIterator[None]:
    """Do something to Redis again and again meanwhile."""

    async def go_on() -> None:
        while True:
            act()
            await asyncio.sleep(every_s)

    acting = asyncio.create_task(go_on())
    try:
        yield
    finally:
        acting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await acting


async def test_scripts_flushed_all_the_time_cost_no_client_an_error(cluster: Cluster) -> None:
    async with clients(cluster.replicas) as https:
        with Watch(cluster):
            # Given load through three replicas, streams among it
            load = Load(https, **SHORT)
            streams = [Streams(http, 5, max_tokens=PER_S) for http in https]

            # When the script cache is emptied ten times a second
            async with repeatedly(cluster.redis.script_flush, 0.1):
                await load.reach(600)
                await asyncio.gather(*(each.ended() for each in streams))
            assert cluster.redis.info("errorstats")["errorstat_NOSCRIPT"]["count"] > 10

            # Then nobody notices
            answers = await load.stop()
            assert Counter(a.status for a in answers) == {200: len(answers)}
            assert all(a.is_whole for each in streams for a in each.answers)
            await idle(cluster)
            assert cluster.reaped() == 0


async def test_connections_killed_under_load_cost_no_client_an_error(cluster: Cluster) -> None:
    async with clients(cluster.replicas) as https:
        with Watch(cluster):
            # Given load through three replicas, streams among it
            load = Load(https, **SHORT)
            streams = [Streams(http, 5, max_tokens=2 * PER_S) for http in https]

            # When all of their connections to Redis are cut, several times
            async with repeatedly(lambda: kill_all(cluster), 0.2):
                await load.reach(600)
                await asyncio.gather(*(each.ended() for each in streams))

            # Then nobody notices
            answers = await load.stop()
            assert Counter((a.status, a.code) for a in answers) == {(200, None): len(answers)}
            assert all(a.is_whole for each in streams for a in each.answers)
            await idle(cluster)
            assert cluster.reaped() == 0


def kill_all(cluster: Cluster) -> None:
    """Cut every connection to Redis but the one that asks for it."""
    cluster.redis.client_kill_filter(_type="normal", skipme=True)


async def test_everything_flushed_under_load_is_put_back_for_what_still_runs(
    cluster: Cluster,
) -> None:
    async with clients(cluster.replicas) as https:
        with Watch(cluster):
            # Given load, and streams that hold claims
            streams = [Streams(http, 10, max_tokens=4 * PER_S) for http in https]
            for each in streams:
                await until(each.all_flow, "first tokens")
            load = Load(https, workers_each=2, **SHORT)
            await load.reach(50)

            # When everything in Redis is lost
            cluster.redis.flushall()

            # Then no request fails, and what still runs is counted again within a lease
            await until(lambda: len(cluster.claims()) >= 30, "claims put back", LEASE_S)
            answers = await load.stop()
            assert Counter(a.status for a in answers) == {200: len(answers)}
            await until(lambda: sum(cluster.inflight().values()) == 30, "the streams alone", 1)
            for each in streams:
                assert all(a.is_whole for a in await each.ended())
            # And nothing stays
            await idle(cluster)
    assert all(replica.events("state_regressed") for replica in cluster.replicas)
