"""What gates cost inside Redis, beside a calibration loop, by the length of the line."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import quantiles

import redis

from gateway.core.gate import Gate
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.keys import Keys
from gateway.state.scripts import folder, load_all
from gateway.state.server import PrivateRedis
from tests.bench.scripts import CALIBRATION, Runner

CALLS = 50
LEASE_MS = 600_000
LINES = (0, 300, 3_000)
GATE = Gate(tag="u:bench:0123456789ab", limit=8, most=8, interval=1_000_000)
KEYS = Keys("bench")


class Line:
    """A full gate with so many in line, of replica `w`, which hears."""

    def __init__(self, client: redis.Redis, length: int) -> None:
        self._client = client
        self._store = GateStore(Runner(client, load_all(folder())), KEYS, Channels(KEYS))
        self._length = length
        self._numbers = itertools.count(1)
        self._holders: list[str] = []

    async def fill(self) -> None:
        """Begin anew."""
        self._client.delete(*KEYS.gate(GATE.tag).values())
        self._holders = [f"h.{next(self._numbers)}" for _ in range(GATE.limit)]
        for ticket in self._holders:
            await self._enter(ticket)
        self._waiting = [f"w.{next(self._numbers)}" for _ in range(self._length + CALLS)]
        for ticket in self._waiting[: self._length]:
            await self._enter(ticket)

    async def all(self) -> dict[str, float]:
        """One batch of each verb, in µs per call."""
        await self.fill()
        joining = iter(self._waiting[self._length :])
        found = {"gate_enter, stands in line": await self._time(lambda: self._enter(next(joining)))}
        found["gate_poll, 1 waits"] = await self._time(lambda: self._poll(self._waiting[:1]))
        if self._length >= 100:
            some = self._waiting[:100]
            found["gate_poll, 100 wait"] = await self._time(lambda: self._poll(some))
        first = iter(self._waiting)
        leaving = iter([*self._holders, *self._waiting])
        found["gate_leave, hands on"] = await self._time(lambda: self._leave(next(leaving)))
        found["gate_confirm"] = await self._time(lambda: self._confirm(next(first)))
        return found

    async def free(self) -> dict[str, float]:
        """The same where nobody has to wait."""
        self._client.delete(*KEYS.gate(GATE.tag).values())
        tickets = [f"h.{next(self._numbers)}" for _ in range(CALLS)]
        wide = Gate(tag=GATE.tag, limit=1000, most=1000, interval=1_000_000)
        entering, leaving = iter(tickets), iter(tickets)
        return {
            "gate_enter, a place is free": await self._time(
                lambda: self._store.enter(
                    wide, ticket=next(entering), wait="line", lease_ms=LEASE_MS
                )
            ),
            "gate_leave, nobody waits": await self._time(
                lambda: self._store.leave(wide, ticket=next(leaving), status=200)
            ),
        }

    async def calibration(self) -> float:
        digest = self._client.script_load(CALIBRATION)

        async def call() -> None:
            self._client.evalsha(digest, 1, "bench:calibration")

        return await self._time(call)

    async def _enter(self, ticket: str) -> None:
        await self._store.enter(GATE, ticket=ticket, wait="line", lease_ms=LEASE_MS)

    async def _poll(self, waiting: list[str]) -> None:
        await self._store.poll(GATE, replica="w", waiting=waiting, held=(), lease_ms=LEASE_MS)

    async def _leave(self, ticket: str) -> None:
        await self._store.leave(GATE, ticket=ticket, status=200)

    async def _confirm(self, ticket: str) -> None:
        await self._store.confirm(GATE, ticket=ticket, lease_ms=LEASE_MS)

    async def _time(self, call: Callable[[], Awaitable[object]]) -> float:
        self._client.config_resetstat()
        for _ in range(CALLS):
            await call()
        return float(self._client.info("commandstats")["cmdstat_evalsha"]["usec"]) / CALLS


async def costs(binary: Path, *, batches: int) -> str:
    """Measure on a private server; the tenth percentile of batches, as a table in markdown."""
    found: dict[int, dict[str, list[float]]] = {length: {} for length in LINES}
    with (
        PrivateRedis(binary) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
        client.pubsub() as ear,
    ):
        ear.subscribe(KEYS.grants() + "w")
        for _, length in itertools.product(range(batches), LINES):
            line = Line(client, length)
            here = {"calibration": await line.calibration()}
            here |= await line.all() if length else await line.free()
            for name, us in here.items():
                found[length].setdefault(name, []).append(us)
            while ear.get_message():
                pass
    lines = ["| script | in line | µs per call | to 20 × SET, GET |", "|---|---:|---:|---:|"]
    for length, verbs in found.items():
        of = {name: quantiles(times, n=10)[0] for name, times in verbs.items()}
        unit = of.pop("calibration")
        lines += [f"| {name} | {length} | {us:.1f} | {us / unit:.2f} |" for name, us in of.items()]
    return "\n".join(lines)
