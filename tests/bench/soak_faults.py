"""What is done to a cluster under load, and when which of it may be felt."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections import Counter

from tests.bench.machine import HOST
from tests.bench.soak_cluster import START_S, Cluster

LIGHT_S, HEAVY_S = 0.7, 4.0
"""Pauses between faults that nobody may feel, and between those that may be felt."""
AWAY_S = (0.3, 2.0)
"""How long Redis, or a replica, stays away."""
GRACE_S = 2.0
"""How long after Redis is back a replica may still take it for away: it asks once a second."""
LOOK_S = 0.05


class Windows:
    """Times in which something may be felt."""

    def __init__(self) -> None:
        self._windows: list[list[float]] = []

    def begin(self) -> None:
        """From now on."""
        self._windows.append([time.monotonic(), math.inf])

    def end(self, grace_s: float) -> None:
        """Until a little after now."""
        self._windows[-1][1] = time.monotonic() + grace_s

    @property
    def is_open(self) -> bool:
        """Whether the last one goes on without a known end."""
        return bool(self._windows) and self._windows[-1][1] == math.inf

    def touch(self, began_s: float, ended_s: float) -> bool:
        """Whether a time has a part in any of them."""
        return any(begin <= ended_s and began_s <= end for begin, end in self._windows)


class Faults:
    """Makes faults, light and heavy ones side by side."""

    def __init__(self, cluster: Cluster) -> None:
        self.counts: Counter[str] = Counter()
        self.redis_away = Windows()
        self.replica_away = [Windows() for _ in cluster.replicas]
        self._cluster = cluster

    async def run(self, seconds: float) -> None:
        """Make faults for so long. Ends with everything up."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._light(seconds))
            both.create_task(self._heavy(seconds))

    async def _light(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        for act in itertools.cycle((self._flush_scripts, self._kill_connections)):
            await asyncio.sleep(LIGHT_S)
            if time.monotonic() > end_s:
                return
            if not self.redis_away.is_open:
                act()

    async def _heavy(self, seconds: float) -> None:
        """Kill Redis and a replica in turn, a replica last: Redis forgets what was not freed."""
        end_s = time.monotonic() + seconds
        for number in itertools.cycle(range(len(self._cluster.replicas))):
            if time.monotonic() + 3 * HEAVY_S > end_s:
                return
            await asyncio.sleep(HEAVY_S)
            await self._kill_redis()
            await asyncio.sleep(HEAVY_S)
            await self._kill_replica(number)

    def _flush_scripts(self) -> None:
        self._cluster.redis.script_flush()
        self.counts["SCRIPT FLUSH"] += 1

    def _kill_connections(self) -> None:
        self._cluster.redis.client_kill_filter(_type="normal", skipme=True)
        self.counts["CLIENT KILL"] += 1

    async def _kill_redis(self) -> None:
        server = self._cluster.server
        assert server.process is not None
        self.redis_away.begin()
        server.process.kill()
        server.process.wait()
        await asyncio.sleep(random.uniform(*AWAY_S))
        # Not in a thread: the server is to die with the thread that starts it.
        server.start()
        self._cluster.redis.connection_pool.disconnect()
        self.redis_away.end(GRACE_S)
        self.counts["Redis killed"] += 1

    async def _kill_replica(self, number: int) -> None:
        replica = self._cluster.replicas[number]
        self.replica_away[number].begin()
        replica.kill()
        await asyncio.sleep(random.uniform(*AWAY_S))
        replica.start()
        for _ in range(int(START_S / LOOK_S)):
            if await self._answers(replica.port):
                break
            await asyncio.sleep(LOOK_S)
        self.replica_away[number].end(grace_s=0.5)
        self.counts["replica killed"] += 1

    async def _answers(self, port: int) -> bool:
        """Whether somebody answers at this port, without holding up the clients."""
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            return False
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: soak\r\nconnection: close\r\n\r\n")
        try:
            return b" 200 " in await reader.readline()
        except OSError:
            return False
        finally:
            writer.close()
