"""Redis is frozen, killed or late: short answers while it is away, no restart after."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.state.server import PrivateRedis
from tests.cluster.conftest import LEASE_S, PER_S, own_redis
from tests.cluster.harness import HTTP, Cluster
from tests.cluster.load import Answer, Load, Streams, Watch, ask, clients, idle, until

TIMEOUT_S = 0.5
ROUTING = {
    "state": {
        "lease_s": LEASE_S,
        "socket_timeout_ms": int(TIMEOUT_S * 1000),
        "heartbeat_s": 0.2,
        "replica_ttl_s": 0.6,
    },
}
PACED = {"ttft_ms": 0, "tokens_per_s": PER_S, "output_tokens": 30 * PER_S}
SHORT = {"max_tokens": 1}


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, mortal_redis: PrivateRedis
) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("away"),
        mortal_redis.url,
        engines={"engine-a": PACED, "engine-b": PACED},
        routing=ROUTING,
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.reset()
    return shared


@pytest.mark.parametrize("how", ["frozen", "killed"])
async def test_without_redis_answers_are_short_and_say_when_to_come_again(
    cluster: Cluster, mortal_redis: PrivateRedis, how: str
) -> None:
    assert mortal_redis.process is not None
    pids = [replica.pid for replica in cluster.replicas]
    async with clients(cluster.replicas) as https:
        with Watch(cluster):
            # Given load, streams that end during the outage, and streams that outlast it
            ending = [Streams(http, 5, max_tokens=2 * PER_S) for http in https]
            lasting = [Streams(http, 5, max_tokens=7 * PER_S) for http in https]
            for each in (*ending, *lasting):
                await until(each.all_flow, "first tokens")
            load = Load(https, workers_each=2, **SHORT)
            await load.reach(50)

            # When Redis goes away
            if how == "killed":
                mortal_redis.process.kill()
                mortal_redis.process.wait()
            else:
                mortal_redis.process.send_signal(signal.SIGSTOP)
            try:
                gone_at = len(load.answers)
                for replica in cluster.replicas:
                    await until(lambda r=replica: r.readiness()[1] == "degraded", "degraded")
                    assert replica.readiness() == (200, "degraded")
                    assert HTTP.get(f"{replica.url}/livez").status_code == 200
                later = [await ask(http, **SHORT) for http in https]
                for each in ending:
                    assert all(a.is_whole for a in await each.ended())
            finally:
                back(mortal_redis)

            # Then it is told at once, and streams go on
            for answer in later:
                check_unavailable(answer)
            for answer in load.answers[gone_at:]:
                if answer.status != 200:
                    check_unavailable(answer)

            # When it is back, then everybody serves again without a restart
            for replica in cluster.replicas:
                await until(replica.is_ready, "ready", 5)
            for http in https:
                assert (await ask(http, **SHORT)).status == 200
            answers = await load.stop()
            assert {a.status for a in answers} <= {200, 503}
            # And streams that lasted are whole, and nothing is left
            for each in lasting:
                assert all(a.is_whole for a in await each.ended())
            await idle(cluster)
    assert [replica.pid for replica in cluster.replicas] == pids
    assert all(replica.is_running for replica in cluster.replicas)


def back(redis: PrivateRedis) -> None:
    """Start Redis again at its old address, or let it go on."""
    assert redis.process is not None
    if redis.process.poll() is None:
        redis.process.send_signal(signal.SIGCONT)
    else:
        redis.start()


def check_unavailable(answer: Answer) -> None:
    assert (answer.status, answer.code, answer.retry_after) == (503, "state_unavailable", 1)
    assert answer.took_s < 2 * TIMEOUT_S + 1  # and one for a busy machine


async def test_a_replica_can_be_stopped_while_redis_is_frozen(
    cluster: Cluster, mortal_redis: PrivateRedis
) -> None:
    # Given a replica with streams, and a Redis that does not answer
    assert mortal_redis.process is not None
    leaving = cluster.replicas[0]
    async with clients([leaving]) as (http,):
        streams = Streams(http, 10, max_tokens=2 * PER_S)
        await until(streams.all_flow, "first tokens")
        mortal_redis.process.send_signal(signal.SIGSTOP)
        try:
            # When it is told to stop
            leaving.signal(signal.SIGTERM)

            # Then its streams finish, and it waits for Redis no longer than it must
            assert all(answer.is_whole for answer in await streams.ended())
            assert await asyncio.to_thread(leaving.wait, 6) == 0
        finally:
            mortal_redis.process.send_signal(signal.SIGCONT)
    # And the others tidy up after it
    await idle(cluster)


async def test_what_ended_during_an_outage_is_settled_after_it(tmp_path: Path) -> None:
    # Given leases that outlast the outage, and streams, some of which are going to fail
    state = {"lease_s": 30, "socket_timeout_ms": 200, "heartbeat_s": 0.2, "replica_ttl_s": 2}
    with (
        own_redis() as redis,
        Cluster(
            tmp_path,
            redis.url,
            engines={"well": PACED, "ill": PACED},
            routing={"state": state},
            replicas=1,
        ) as cluster,
    ):
        assert redis.process is not None
        cluster.engines[1].fault(cut_after_tokens=2 * PER_S)
        async with clients(cluster.replicas) as (http,):
            streams = Streams(http, 20, max_tokens=2 * PER_S + 1)
            await until(streams.all_flow, "first tokens")
            failing = cluster.inflight()[cluster.engines[1].location]

            # When all of them end while Redis does not answer and is not even asked any more
            redis.process.send_signal(signal.SIGSTOP)
            try:
                for _ in range(5):  # one after the other: those of one stall count once
                    await ask(http, **SHORT)
                await until(lambda: cluster.replicas[0].readiness()[1] == "degraded", "degraded", 1)
                answers = await streams.ended()
            finally:
                redis.process.send_signal(signal.SIGCONT)

            # Then Redis hears of each, what it held and how it went, long before a lease is over
            assert sum(not answer.is_whole for answer in answers) == failing
            await until(cluster.is_idle, "an idle model", 5)
            assert cluster.reaped() == 0
            availability = float(cluster.row()[f"{cluster.engines[1].location}:availability"])
            assert availability == pytest.approx(0.9**failing)


async def test_replicas_started_before_redis_serve_as_soon_as_it_is_there(
    tmp_path: Path,
) -> None:
    # Given replicas with a Redis that does not exist yet
    redis = own_redis()
    with Cluster(tmp_path, redis.url, engines={"a": PACED}, routing=ROUTING) as cluster:
        try:
            async with clients(cluster.replicas) as https:
                for http in https:
                    check_unavailable(await ask(http, **SHORT))

                # When it comes
                redis.start()
                started = time.monotonic()

                # Then they serve
                for http in https:
                    await until(lambda: cluster.redis.ping(), "Redis up")
                    await served(http)
                assert time.monotonic() - started < 5
                await idle(cluster)
        finally:
            redis.stop()


async def served(http: httpx.AsyncClient) -> None:
    """Ask until the answer is not that state is unavailable."""
    for _ in range(100):
        if (answer := await ask(http, **SHORT)).code != "state_unavailable":
            assert answer.status == 200
            return
        await asyncio.sleep(0.05)
    raise AssertionError("Redis is there, and the replica does not notice")
