"""What is measured of a gateway in one round: values by the name of their measure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles

import uvloop
from msgspec import Struct

from tests.bench import wrk
from tests.bench.client import Client, Failed
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
BEGIN_S = 10.0
CALM_BUSY = 0.1
CALM_S = 30.0


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
            idle = {"rss_mb": usage(running.process.pid).rss_kb / 1024}
            loaded = self.requests(running)
            return idle | loaded | uvloop.run(self._added(running, loaded["rps"]))
        if kind is Kind.UNPACED:
            return uvloop.run(self._unpaced(running))
        return uvloop.run(self._paced(running))

    def requests(self, running: Running) -> Values:
        """Have wrk ask without pause.

        Requests are counted at the upstream, in a window that holds neither the load's start nor
        its end, so that requests under way do not blur what one costs.
        """
        warm_s, seconds = self.extent.warm_s, self.extent.seconds
        with wrk.load(
            running,
            self.folder,
            self.load_cores,
            connections=CONNECTIONS,
            seconds=warm_s + seconds + 0.5,
        ):
            time.sleep(warm_s)
            before = _look(running, served=self.upstreams.served())
            time.sleep(seconds)
            after = _look(running, served=self.upstreams.served())
        spent = _spent(before, after)
        found = {
            "rps": spent["served"] / spent["time_s"],
            "busy": spent["cpu_s"] / spent["time_s"],
            "cpu_us": _per(spent["cpu_s"], spent["served"]),
        }
        if running.redis_pid:
            found["redis_us"] = _per(spent["redis_s"], spent["served"])
        return found

    async def _added(self, running: Running, rps: float) -> Values:
        """Latency at a constant rate, over that of the upstreams themselves at the same rate."""
        # Beyond its capacity a gateway would only show how long its queue has grown.
        rate = min(RATE, rps / 2)
        await _calm(running)
        through = await self._latency(running.url, running.headers, rate)
        direct = await self._latency(self.upstreams.urls[Kind.WHOLE][0], HEADERS, rate)
        added = {name: through[name] - direct[name] for name in through}
        return added | {"rate": rate, "direct_p50_ms": direct["p50_ms"]}

    async def _latency(self, url: str, headers: Mapping[str, str], rate: float) -> Values:
        async with _client(url, headers, stream=False) as client:
            await client.at_rate(rate, self.extent.warm_s)
            took_s = await client.at_rate(rate, self.extent.seconds)
        cuts = quantiles(took_s, n=100, method="inclusive")
        return {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}

    async def _unpaced(self, running: Running) -> Values:
        async with (
            _client(running.url, running.headers, stream=True) as client,
            client.repeating(UNPACED_STREAMS),
        ):
            spent = await self._watch(running, client)
        return {
            "unpaced_per_s": spent["events"] / spent["time_s"],
            "unpaced_busy": spent["cpu_s"] / spent["time_s"],
            "unpaced_us": _per(spent["cpu_s"], spent["events"]),
        }

    async def _paced(self, running: Running) -> Values:
        count, pid = self.extent.open_streams, running.process.pid
        found: Values = {}
        self.upstreams.pace(OPEN_PACE_MS)
        async with _client(running.url, running.headers, stream=True) as client:
            idle_kb = usage(pid).rss_kb
            if await client.open_streams(count, OPEN_S) == count:
                found["kb_per_stream"] = (usage(pid).rss_kb - idle_kb) / count
        await _calm(running)
        self.upstreams.pace(PACE_MS)
        async with _client(running.url, running.headers, stream=True) as client:
            await client.open_streams(PACED_STREAMS, BEGIN_S)  # an overloaded one begins fewer
            spent = await self._watch(running, client)
            client.check_streams()
        return found | {
            "paced_per_s": spent["events"] / spent["time_s"],
            "paced_us": _per(spent["cpu_s"], spent["events"]),
        }

    async def _watch(self, running: Running, client: Client) -> Values:
        await asyncio.sleep(self.extent.warm_s)
        before = _look(running, events=client.events())
        await asyncio.sleep(self.extent.seconds)
        return _spent(before, _look(running, events=client.events()))


def _look(running: Running, **counts: int) -> Values:
    seen = {"time_s": time.perf_counter(), "cpu_s": usage(running.process.pid).cpu_s, **counts}
    if running.redis_pid:
        seen["redis_s"] = cpu_s(running.redis_pid)
    return seen


def _spent(before: Values, after: Values) -> Values:
    return {name: after[name] - before[name] for name in after}


def _per(seconds: float, count: float) -> float:
    if count <= 0:
        raise Failed("it answered nothing while it was watched")
    return seconds / count * 1e6


async def _calm(running: Running) -> None:
    """Wait until a gateway has done with what was asked of it before."""
    deadline_s = time.monotonic() + CALM_S
    busy = 1.0
    while busy > CALM_BUSY and time.monotonic() < deadline_s:
        used_s = usage(running.process.pid).cpu_s
        await asyncio.sleep(0.25)
        busy = (usage(running.process.pid).cpu_s - used_s) / 0.25


@asynccontextmanager
async def _client(url: str, headers: Mapping[str, str], *, stream: bool) -> AsyncIterator[Client]:
    client = Client(url, headers, stream=stream)
    try:
        yield client
    finally:
        client.close()
