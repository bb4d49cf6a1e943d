"""Load on three replicas while Redis and replicas are killed: not one wrong answer, no leak."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from tests.bench.soak_after import judge_logs, judge_rest
from tests.bench.soak_client import Call, Client, End, ids
from tests.bench.soak_cluster import Cluster
from tests.bench.soak_faults import Faults
from tests.bench.soak_report import Report, spread
from tests.bench.soak_words import Work

WORKERS = 256
STREAMED = 0.25
LEAVING = 0.1
CUT_SHORT = 0.1
"""Part of those who leave that go before all of their request is out."""
SERVED_S = 10.0
"""How long everybody may take to be served again after the last fault."""


class Pacer:
    """Gives out turns at a rate, as far as there are takers."""

    def __init__(self, rate: float) -> None:
        self._pause_s = 1 / rate
        self._next_s = time.monotonic()

    async def turn(self) -> None:
        """Wait for the next one. What a slow moment has missed is made up for a little."""
        now = time.monotonic()
        self._next_s = max(self._next_s, now - 0.1) + self._pause_s
        await asyncio.sleep(self._next_s - now)


class Tally(Struct):
    """How calls have gone; only those that need a look are kept."""

    ends: Counter[str]
    took_s: list[float]
    odd: list[Call]
    last_s: float = 0.0
    """When the last one ended."""

    def note(self, call: Call) -> None:
        """Count a call that has ended."""
        self.last_s = call.ended_s
        self.ends[f"{call.end} {call.what}".strip() if call.end is not End.WRONG else call.end] += 1
        if call.end is End.WHOLE and not call.stream:
            self.took_s.append(call.ended_s - call.began_s - call.work.most_ms / 1000)
        elif call.end not in (End.WHOLE, End.LEFT):
            self.odd.append(call)


async def run(seconds: float, rate: float, replicas: int) -> bool:
    """Run, judge and report. Returns whether every rule has been kept."""
    report = Report(f"chaos: {replicas} replicas, {rate:.0f} requests/s wanted for {seconds:.0f} s")
    with Cluster(replicas) as cluster:
        files = [replica.files() for replica in cluster.replicas]
        client = Client([replica.port for replica in cluster.replicas])
        faults = Faults(cluster)
        tally, took_s = await _load(client, faults, replicas, seconds, rate)
        again = await _served_again(client, replicas)
        await client.close()
        _report(report, tally, faults, took_s, cluster.seen()["hung_up"])
        _judge(report, tally, faults)
        report.rule("everybody is served again after the last fault", again)
        report.rule(
            "no replica has ended by itself",
            [f"replica {n}" for n, r in enumerate(cluster.replicas, 1) if r.has_ended],
        )
        await judge_rest(cluster, files, report)
    judge_logs(cluster, report)
    return not report.broken


async def _load(
    client: Client, faults: Faults, replicas: int, seconds: float, rate: float
) -> tuple[Tally, float]:
    """Have workers make calls while faults are made; returns how they went and how long it took."""
    tally, pacer = Tally(Counter(), [], []), Pacer(rate)
    began_s = time.monotonic()
    calls = _calls(replicas)

    async def work() -> None:
        while time.monotonic() < began_s + seconds:
            await pacer.turn()
            tally.note(await client.make(next(calls)))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(faults.run(seconds))
        for _ in range(WORKERS):
            tasks.create_task(work())
    return tally, tally.last_s - began_s


def _calls(replicas: int) -> Iterator[Call]:
    """Calls of all kinds, without end."""
    for request_id in ids():
        stream = random.random() < STREAMED
        wait_ms = random.randint(0, 100)
        work = Work(random.randint(5, 15), 5, 20) if stream else Work(1, wait_ms, wait_ms)
        call = Call(id=request_id, work=work, stream=stream, server=random.randrange(replicas))
        if random.random() < LEAVING:
            call.leave_after_s = random.uniform(0, 1.2 * work.about_s)
            call.leave_with = random.random() if random.random() < CUT_SHORT else 1.0
        yield call


async def _served_again(client: Client, replicas: int) -> list[str]:
    """Ask every replica until it serves; returns what those say that do not."""
    faults = []
    fresh = ids()
    for number in range(replicas):
        end_s = time.monotonic() + SERVED_S
        while True:
            call = Call(id=next(fresh), work=Work(), stream=False, server=number)
            await client.make(call)
            if call.end is End.WHOLE:
                break
            if time.monotonic() > end_s:
                faults.append(f"replica {number + 1}: {call.end} {call.what}")
                break
            await asyncio.sleep(0.1)
    return faults


def _report(report: Report, tally: Tally, faults: Faults, took_s: float, hung_up: int) -> None:
    count = sum(tally.ends.values())
    report.fact(f"{count} requests, {count / took_s:.0f}/s; the engine saw {hung_up} clients leave")
    report.fact("how they ended: " + ", ".join(f"{n} {end}" for end, n in tally.ends.most_common()))
    report.fact("faults: " + ", ".join(f"{n} x {what}" for what, n in faults.counts.items()))
    report.fact(f"whole answers, beyond what the engine waits: {spread(tally.took_s)}")


def _judge(report: Report, tally: Tally, faults: Faults) -> None:
    """Judge the calls that were not simply answered."""
    wrong, hanging, errors, refused, resets = [], [], [], [], []
    for call in tally.odd:
        said = f"{call.id} on replica {call.server + 1}: {call.end} {call.what}"
        said += f", {call.events} events, {call.ended_s - call.began_s:.2f} s"
        by_replica = faults.replica_away[call.server].touch(call.began_s, call.ended_s)
        by_redis = faults.redis_away.touch(call.began_s, call.ended_s)
        if call.end is End.WRONG:
            wrong.append(said)
        elif call.end is End.OVERDUE:
            hanging.append(said)
        elif call.end is End.ERROR and call.what != "503 state_unavailable":
            errors.append(said)
        elif call.end is End.ERROR and not by_redis:
            refused.append(said)
        elif call.end in (End.RESET, End.UNREACHABLE) and not by_replica:
            resets.append(said)
    report.rule("every answer and every event is the request's own, whole and in order", wrong)
    report.rule("no request hangs", hanging)
    report.rule("no error but state_unavailable", errors)
    report.rule("state_unavailable only while Redis is away", refused)
    report.rule("connections break only when their replica is killed", resets)
