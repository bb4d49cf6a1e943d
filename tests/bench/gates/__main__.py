"""Gates, measured: `python -m tests.bench.gates [--quick]` prints tables in markdown.

1. one gate of 8 places and 300 waiters of three replicas, each a process: how much of the places is
   used, how long a place is free between two requests;
2. a replica that is killed, or freezes, and channels that are cut: what that costs the others;
3. what the scripts cost inside Redis, by the length of the line.

On a machine that does other things, too, look at the load that is printed beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median, quantiles

import redis
from msgspec import Struct

from gateway.state.server import PrivateRedis, find_server
from tests.bench.gates.costs import costs
from tests.bench.machine import Unfit
from tests.cluster.gates import Upstream, Worker, holders, until, waiting, worker

LIMIT = 8
WAITERS = 300
REPLICAS = ("a", "b", "c")
HOLD_S = 0.2
LEASE_MS = 1500
LONG_S = 120.0


class Scene(Struct):
    """Three replicas, an upstream, and somebody with a redis-cli."""

    client: redis.Redis
    upstream: Upstream
    workers: list[Worker]


@asynccontextmanager
async def scene(binary: Path) -> AsyncIterator[Scene]:
    """Set up anew."""
    with PrivateRedis(binary) as server, tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(Upstream(Path(folder) / "upstream.sock"))
            starting = [worker(server.url, upstream, name, lease_ms=LEASE_MS) for name in REPLICAS]
            workers = await asyncio.gather(*map(stack.enter_async_context, starting))
            with redis.Redis.from_url(server.url, decode_responses=True) as client:
                yield Scene(client, upstream, list(workers))


async def throughput(binary: Path) -> str:
    """Three hundred requests at once."""
    async with scene(binary) as at:
        for each in at.workers:
            each.start(WAITERS // len(REPLICAS), hold_s=HOLD_S, limit=LIMIT)
        for each in at.workers:
            await each.answered(WAITERS // len(REPLICAS))
        found = at.upstream.hand_overs_ms(LIMIT)
        used = at.upstream.used(LIMIT)
        return (
            f"| {at.upstream.most} | {used:.1%} | {median(found):.1f} "
            f"| {quantiles(found, n=20)[-1]:.1f} | {load()} |"
        )


async def killed(binary: Path) -> str:
    """`kill -9` of the replica with five of eight places and a hundred waiters in front."""
    async with scene(binary) as at:
        a, b, c = at.workers
        a.start(5, hold_s=LONG_S)
        b.start(3, hold_s=1.5)
        await until(lambda: len(holders(at.client)) == LIMIT, "full")
        a.start(100, hold_s=HOLD_S)
        await until(lambda: waiting(at.client) == 100, "in line")
        c.start(100, hold_s=HOLD_S)
        await until(lambda: waiting(at.client) == 200, "in line")
        a.signal(signal.SIGKILL)
        killed_s = time.monotonic()
        await b.answered(1)
        freed_s = time.monotonic()
        await until(lambda: at.upstream.active >= 3, "the next in line are there")
        next_s = time.monotonic()
        await until(lambda: at.upstream.active == LIMIT, "all places are back")
        back_s = time.monotonic()
        await c.answered(100)
    leases = (back_s - killed_s) / (LEASE_MS / 1000)
    return (
        f"| killed | its 100 waiters skipped within {(next_s - freed_s) * 1000:.0f} ms of the next "
        f"free place, its 5 places back after {leases:.2f} leases | {load()} |"
    )


async def frozen(binary: Path) -> str:
    """SIGSTOP of the replica whose waiters are the first in line."""
    async with scene(binary) as at:
        a, b, c = at.workers
        b.start(LIMIT, hold_s=1.0)
        await until(lambda: len(holders(at.client)) == LIMIT, "full")
        a.start(100, hold_s=HOLD_S)
        await until(lambda: waiting(at.client) == 100, "in line")
        c.start(100, hold_s=HOLD_S)
        await until(lambda: waiting(at.client) == 200, "in line")
        a.signal(signal.SIGSTOP)
        await b.answered(LIMIT)
        freed_s = time.monotonic()
        await until(lambda: at.upstream.active == LIMIT, "others have all places")
        lost_s = time.monotonic() - freed_s
        a.signal(signal.SIGCONT)
        for each in (a, c):
            await each.answered(100)
    return f"| frozen | all places in others' use after {lost_s:.2f} s | {load()} |"


async def cut(binary: Path, seconds: float) -> str:
    """No subscription lives for longer than some milliseconds."""
    async with scene(binary) as at:
        count = round(seconds * LIMIT / HOLD_S / len(REPLICAS))
        for each in at.workers:
            each.start(count, hold_s=HOLD_S)
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            at.client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await asyncio.sleep(0.002)
        meanwhile = at.upstream.served
        for each in at.workers:
            await each.answered(count)
        every = {answer for each in at.workers for answer in each.answers}
        return (
            f"| channels cut for {seconds:.0f} s | {meanwhile} of {len(every)} requests served in "
            f"that time, {len(every) - len(REPLICAS) * count} lost, "
            f"{at.upstream.served - len(every)} doubled, at most {at.upstream.most} at once "
            f"| {load()} |"
        )


def load() -> str:
    """How much else the machine is doing: runnable tasks per core, over the last minute."""
    return f"{os.getloadavg()[0] / (os.cpu_count() or 1):.1f}"


async def main(*, quick: bool) -> None:
    """Print what was found."""
    binary = find_server()
    if binary is None:
        raise Unfit("needs a redis-server")
    print("| most at once | places used | hand-over ms, median | 95 % | load |")
    print("|---:|---:|---:|---:|---:|")
    for _ in range(1 if quick else 3):
        print(await throughput(binary), flush=True)
    print("\n| what happens | what it costs | load |\n|---|---|---:|")
    print(await killed(binary), flush=True)
    print(await frozen(binary), flush=True)
    print(await cut(binary, 3 if quick else 10), flush=True)
    print()
    print(await costs(binary, batches=10 if quick else 40))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="once, and shorter")
    asyncio.run(main(quick=parser.parse_args().quick))
