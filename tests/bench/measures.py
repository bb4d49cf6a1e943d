"""What is measured of a gateway in one round: values by the name of their measure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import uvloop
from msgspec import Struct

from tests.bench import payloads, wrk
from tests.bench.client import Client
from tests.bench.processes import cpu_s, usage
from tests.bench.running import Running
from tests.bench.upstreams import HEADERS, Kind, Upstreams

Values = dict[str, float]
CONNECTIONS = 64
UNPACED_STREAMS = 16
PACED_STREAMS = 100
PACE_MS = 20
OPEN_PACE_MS = 5000
RATE = 300.0
OPEN_S = 120.0


class Extent(Struct, frozen=True):
    """How long is measured, and how many streams are held open."""

    warm_s: float
    seconds: float
    open_streams: int


FULL = Extent(2.0, 8.0, 1000)
QUICK = Extent(0.5, 2.0, 200)


class Bench(Struct, frozen=True):
    """Measures gateways. Raises `NotUp` and `Failed` when one does not do what it should."""

    upstreams: Upstreams
    extent: Extent
    folder: Path
    load_cores: Collection[int]

    def measure(self, running: Running, kind: Kind) -> Values:
        """Measure all that goes with upstreams of a kind."""
        if kind is Kind.WHOLE:
            return self._whole(running)
        if kind is Kind.UNPACED:
            found = self._under_load(running, UNPACED_STREAMS, stream=True)
            return {
                "unpaced_per_s": found["per_s"] * payloads.EVENTS,
                "unpaced_cpu_us": found["cpu_us"] / payloads.EVENTS,
                "unpaced_busy": found["busy"],
            }
        return uvloop.run(self._paced(running))

    def _whole(self, running: Running) -> Values:
        found = {"rss_mb": usage(running.process.pid).rss_kb / 1024}
        loaded = self._under_load(running, CONNECTIONS, stream=False)
        found |= {"rps": loaded["per_s"], "cpu_us": loaded["cpu_us"], "busy": loaded["busy"]}
        if "redis_us" in loaded:
            found["redis_us"] = loaded["redis_us"]
        # Beyond its capacity a gateway would only show how long its queue has grown.
        rate = min(RATE, found["rps"] / 2)
        ours = self._latency(running.url, running.headers, rate)
        direct = self._latency(self.upstreams.urls[Kind.WHOLE][0], HEADERS, rate)
        added = {name: ours[name] - direct[name] for name in ours}
        return found | added | {"latency_rate": rate, "direct_p50_ms": direct["p50_ms"]}

    def _under_load(self, running: Running, connections: int, *, stream: bool) -> Values:
        """Count at the upstream, in a window in which neither start nor end of the load falls."""
        extent = self.extent
        seconds = extent.warm_s + extent.seconds + 0.5
        with wrk.load(
            running,
            self.folder,
            self.load_cores,
            stream=stream,
            connections=connections,
            seconds=seconds,
        ):
            time.sleep(extent.warm_s)
            before = self._look(running)
            time.sleep(extent.seconds)
            after = self._look(running)
        passed = {name: after[name] - before[name] for name in after}
        if not passed["served"]:
            return {"per_s": 0.0, "cpu_us": 0.0, "busy": 0.0}
        found = {
            "per_s": passed["served"] / passed["time_s"],
            "cpu_us": passed["cpu_s"] / passed["served"] * 1e6,
            "busy": passed["cpu_s"] / passed["time_s"],
        }
        if "redis_s" in passed:
            found["redis_us"] = passed["redis_s"] / passed["served"] * 1e6
        return found

    def _look(self, running: Running) -> Values:
        seen = {
            "time_s": time.perf_counter(),
            "cpu_s": usage(running.process.pid).cpu_s,
            "served": float(self.upstreams.served()),
        }
        if running.redis_pid:
            seen["redis_s"] = cpu_s(running.redis_pid)
        return seen

    def _latency(self, url: str, headers: Mapping[str, str], rate: float) -> Values:
        with _client(url, headers, stream=False) as client:
            took = uvloop.run(self._at_rate(client, rate))
        cuts = quantiles(took, n=100, method="inclusive")
        return {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}

    async def _at_rate(self, client: Client, rate: float) -> list[float]:
        await client.at_rate(rate, self.extent.warm_s / 2)
        return await client.at_rate(rate, self.extent.seconds)

    async def _paced(self, running: Running) -> Values:
        count, pid = self.extent.open_streams, running.process.pid
        found: Values = {}
        self.upstreams.pace(OPEN_PACE_MS)
        with _client(running.url, running.headers, stream=True) as client:
            idle_kb = usage(pid).rss_kb
            await client.open_streams(count, OPEN_S)
            found["kb_per_stream"] = (usage(pid).rss_kb - idle_kb) / count
        await asyncio.sleep(self.extent.warm_s)
        self.upstreams.pace(PACE_MS)
        with _client(running.url, running.headers, stream=True) as client:
            await client.open_streams(PACED_STREAMS, OPEN_S)
            await asyncio.sleep(self.extent.warm_s)
            events, used_s, start_s = client.events(), usage(pid).cpu_s, time.perf_counter()
            await asyncio.sleep(self.extent.seconds)
            events, used_s = client.events() - events, usage(pid).cpu_s - used_s
            client.check_streams()
            found["paced_per_s"] = events / (time.perf_counter() - start_s)
            found["paced_cpu_us"] = used_s / events * 1e6
        return found


@contextmanager
def _client(url: str, headers: Mapping[str, str], *, stream: bool) -> Iterator[Client]:
    client = Client(url, headers, stream=stream)
    try:
        yield client
    finally:
        client.close()
