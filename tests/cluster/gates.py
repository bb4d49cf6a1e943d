"""Replicas' gates, each a process of its own, over one Redis, before an upstream that counts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import redis
from msgspec import Struct, field

from gateway.admission.secret import Secret
from gateway.core.digests import upstream_key_id
from gateway.state.keys import Keys
from tests.cluster import forked, gate_worker
from tests.cluster.gate_worker import KEY, ROUTE, SECRET

SOON_S = 30.0
"""Far beyond what anything here takes."""
_KEY = Secret(SECRET).key
assert _KEY
TAG = f"u:{ROUTE.provider}:{upstream_key_id(_KEY, KEY)}"
KEYS = Keys().gate(TAG)


class Upstream:
    """Counts who is there, and when that changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.active = 0
        self.most = 0
        self.served = 0
        self.changes: list[tuple[float, int]] = []
        """When, and how many were there from then on."""

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count(+1)
        with contextlib.suppress(ConnectionError):
            writer.write(b".")
            if await reader.read(1) == b".":
                self.served += 1
        self._count(-1)
        writer.close()

    def _count(self, by: int) -> None:
        self.active += by
        self.most = max(self.most, self.active)
        self.changes.append((time.monotonic(), self.active))

    def used(self, limit: int) -> float:
        """Which share of the places was in use, from when all were to when the last went unused."""
        full = [at for at, active in self.changes if active == limit]
        begin, end = full[0], full[-1]
        busy_s = sum(
            min(active, limit) * (max(min(then, end), begin) - max(at, begin))
            for (at, active), (then, _) in zip(self.changes, self.changes[1:], strict=False)
            if begin <= at < end
        )
        return busy_s / (limit * (end - begin))

    def hand_overs_ms(self, limit: int) -> list[float]:
        """How long a place that one left was free before another came, while others waited."""
        full = [at for at, active in self.changes if active == limit]
        freed: list[float] = []
        found = []
        for (_, before), (at, active) in zip(self.changes, self.changes[1:], strict=False):
            if at > full[-1]:
                break
            if active < before:
                freed.append(at)
            elif freed:
                found.append((at - freed.pop(0)) * 1000)
        return found


class Worker(Struct, eq=False):
    """One replica as a process."""

    id: str
    process: BaseProcess
    orders: asyncio.StreamWriter
    answers: list[str] = field(default_factory=list)
    """A line per request that is over."""
    told: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, count: int, *, hold_s: float, limit: int = 8, wait_s: float = 60) -> None:
        """Have requests come."""
        self.orders.write(f"{count} {hold_s} {limit} {wait_s}\n".encode())

    async def listen(self, lines: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await lines.readline():
                self.answers.append(line.decode().strip())
                self.told.set()

    async def answered(self, count: int) -> list[str]:
        """Wait until so many requests are over, or more."""
        async with asyncio.timeout(SOON_S):
            while len(self.answers) < count:
                self.told.clear()
                await self.told.wait()
        return self.answers

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid
        os.kill(self.process.pid, number)

    async def ended(self) -> int | None:
        """Wait for the end; returns the exit status."""
        await asyncio.to_thread(self.process.join, SOON_S)
        return self.process.exitcode

    async def finish(self) -> None:
        """Let it end when all is over."""
        self.orders.write_eof()
        assert await self.ended() == 0


@contextlib.asynccontextmanager
async def worker(
    redis_url: str, upstream: Upstream, replica_id: str, *, lease_ms: int = 15_000
) -> AsyncIterator[Worker]:
    """A replica, gone at the end."""
    come: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    path = upstream.path.with_name(f"{replica_id}.sock")
    server = await asyncio.start_unix_server(lambda *streams: come.put_nowait(streams), path)
    process = forked.fork(
        gate_worker.main, redis_url, str(upstream.path), str(path), replica_id, lease_ms
    )
    try:
        async with asyncio.timeout(SOON_S):
            lines, orders = await come.get()
        made = Worker(replica_id, process, orders)
        listening = asyncio.create_task(made.listen(lines))
        try:
            yield made
        finally:
            process.kill()
            await listening
            orders.close()
    finally:
        process.kill()
        process.join(SOON_S)
        server.close()


class Watched:
    """What scripts have done to the gate, by MONITOR: numbers given and places granted."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        """Ticket to number in line; 0 of who went straight through."""
        self.granted: list[str] = []
        """Tickets in the order in which they got a place, each once."""

    def note(self, command: str) -> None:
        words = re.findall(r'"([^"]*)"', command) or command.split()
        if len(words) != 4 or words[0].upper() != "ZADD":
            return
        _, key, score, ticket = words
        if key == KEYS["gate_line"]:
            self.numbers[ticket] = int(score)
        elif key == KEYS["gate_holders"] and ticket not in self.granted:
            self.granted.append(ticket)

    def order(self, *replicas: str) -> list[int]:
        """The numbers of those replicas' tickets in the order of grants; 0 is left out."""
        found = [self.numbers.get(t, 0) for t in self.granted if t.partition(".")[0] in replicas]
        return [number for number in found if number]


@contextlib.contextmanager
def watching(client: redis.Redis) -> Iterator[Watched]:
    """Watch what scripts do from now on."""
    watched = Watched()
    begun = threading.Event()

    def watch() -> None:
        with client.monitor() as monitor:
            begun.set()
            for said in monitor.listen():
                if said["client_type"] == "lua":
                    watched.note(said["command"])
                elif said["command"].upper() == "ECHO THAT IS ALL":
                    return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    assert begun.wait(SOON_S)
    try:
        yield watched
    finally:
        client.echo("that is all")
        thread.join(SOON_S)


async def until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    give_up_s = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < give_up_s, f"{what} has not come true"
        await asyncio.sleep(0.01)


def waiting(client: redis.Redis) -> int:
    """How many stand in line."""
    return int(client.zcard(KEYS["gate_line"]))


def holders(client: redis.Redis) -> list[str]:
    """Tickets that hold a place."""
    return client.zrange(KEYS["gate_holders"], 0, -1)


def traces(client: redis.Redis) -> set[str]:
    """Kinds of keys that anybody has left, but for what is known of the limit."""
    return {kind for kind, key in KEYS.items() if client.exists(key)} - {"gate"}
