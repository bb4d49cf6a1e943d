"""What clients do, however they leave, costs a replica nothing for good."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.cluster.conftest import PER_S
from tests.cluster.harness import Cluster, Process
from tests.cluster.load import Streams, Watch, clients, idle, until

ROUNDS, STREAMS = 3, 100
REDIS_POOL = 256
"""A replica's connections to Redis are kept; there are at most so many."""


async def test_300_streams_with_random_disconnects_leave_no_claim_and_no_socket(
    cluster: Cluster,
) -> None:
    # Given three replicas, and what they have open while nobody asks for anything
    chance = random.Random(300)
    before = {replica.name: open_sockets(replica) for replica in cluster.replicas}
    started = whole = 0

    # When 300 streams come in three waves, and half of them are left at any moment
    for _ in range(ROUNDS):
        async with clients(cluster.replicas) as https:
            with Watch(cluster) as watch:
                streams = [
                    Streams(https[n % 3], 1, max_tokens=chance.randint(1, 2 * PER_S))
                    for n in range(STREAMS)
                ]
                await asyncio.gather(*(leave_or_stay(each, chance) for each in streams))
                await idle(cluster)
        started += watch.most_inflight
        whole += sum(each.answers[0].is_whole for each in streams)

    # Then some were whole and some not, and nothing is held, in Redis or in the engines
    assert started > ROUNDS * STREAMS / 3
    assert ROUNDS * STREAMS / 3 < whole < ROUNDS * STREAMS
    seen = [engine.counters() for engine in cluster.engines]
    assert sum(counters["active"] for counters in seen) == 0
    assert sum(counters["cancelled"] for counters in seen) > ROUNDS * STREAMS / 10
    assert cluster.row().keys() <= {"at_ms", "retries"}
    assert cluster.reaped() == 0
    # And the connections to clients and engines are closed, but for a few of the test's own
    for replica in cluster.replicas:
        tcp, others = before[replica.name]
        await until(lambda r=replica, n=tcp: open_sockets(r)[0] <= n + 2, "closed sockets", 10)
        assert open_sockets(replica)[1] <= others + REDIS_POOL
        assert "Traceback" not in replica.text()
        assert "never retrieved" not in replica.text()


async def leave_or_stay(stream: Streams, chance: random.Random) -> None:
    """Wait for the end of a stream, or for a moment of its life and hang up."""
    if chance.random() < 0.5:
        await stream.ended()
        assert stream.answers[0].is_whole
    else:
        await asyncio.sleep(chance.random() * 1.5)
        await stream.hang_up()


def open_sockets(process: Process) -> tuple[int, int]:
    """How many TCP sockets a process has open, and how many of other kinds."""
    held = set()
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            target = descriptor.readlink().name
        except FileNotFoundError:  # closed since
            continue
        if target.startswith("socket:["):
            held.add(target.removeprefix("socket:[").rstrip("]"))
    lines = Path(f"/proc/{process.pid}/net/tcp").read_text("ascii").splitlines()[1:]
    tcp = held & {line.split()[9] for line in lines}
    return len(tcp), len(held - tcp)
