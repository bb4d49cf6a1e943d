"""A replica that dies or freezes leaves nothing behind, and the others do not notice."""

from __future__ import annotations

import asyncio
import signal
import time

from tests.cluster.conftest import LEASE_S, PER_S
from tests.cluster.harness import Cluster
from tests.cluster.load import Streams, Watch, clients, idle, until


async def test_the_claims_of_a_killed_replica_are_gone_within_one_and_a_half_leases(
    cluster: Cluster,
) -> None:
    # Given a replica with 50 streams, and two with 15 each
    dying, *others = cluster.replicas
    async with clients(cluster.replicas) as https:
        with Watch(cluster) as watch:
            lost = Streams(https[0], 50)
            kept = [Streams(http, 15, max_tokens=5 * PER_S) for http in https[1:]]
            for streams in (lost, *kept):
                await until(streams.all_flow, "first tokens")
            assert len(cluster.claims_of(dying)) == 50

            # When it is killed, and no request comes any more
            dying.kill()
            killed = time.monotonic()

            # Then its claims are undone by the others
            await until(lambda: not cluster.claims_of(dying), "its claims gone")
            assert time.monotonic() - killed < 1.5 * LEASE_S + 1  # and one for a busy machine
            # And their streams come to their end, and nothing is left
            for streams in kept:
                for answer in await streams.ended():
                    assert (answer.status, answer.is_whole) == (200, True)
                    assert answer.tokens == 5 * PER_S
            assert not any(answer.is_whole for answer in await lost.ended())
            await idle(cluster)
        assert watch.most_inflight == 80
    assert cluster.row().keys() <= {"at_ms", "retries"}
    assert all(replica.is_running for replica in others)


async def test_a_frozen_replica_loses_its_claims_and_takes_up_those_still_running(
    cluster: Cluster,
) -> None:
    # Given a replica with streams of different lengths
    frozen = cluster.replicas[0]
    async with clients(cluster.replicas) as https:
        with Watch(cluster):
            short = Streams(https[0], 10, max_tokens=2 * PER_S)
            long = Streams(https[0], 10, max_tokens=9 * PER_S)
            for streams in (short, long):
                await until(streams.all_flow, "first tokens")

            # When it stands still for longer than its lease
            frozen.signal(signal.SIGSTOP)
            try:
                await until(lambda: not cluster.claims_of(frozen), "its claims gone")
                await asyncio.sleep(1)  # the short streams end meanwhile
            finally:
                frozen.signal(signal.SIGCONT)

            # Then what still runs is counted again, and everything ends well
            await until(lambda: len(cluster.claims_of(frozen)) == 10, "its claims back")
            assert sum(cluster.inflight().values()) == 10
            for streams in (short, long):
                assert all(answer.is_whole for answer in await streams.ended())
            await idle(cluster)
    assert frozen.events("state_regressed")
    assert cluster.row().keys() <= {"at_ms", "retries"}
