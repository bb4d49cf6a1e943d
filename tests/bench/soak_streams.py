"""Very many streams at once, for long: memory and files do not grow, who leaves is noticed."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, field

from tests.bench.soak_after import judge_logs, judge_rest
from tests.bench.soak_client import Call, Client, End, ids
from tests.bench.soak_cluster import Cluster, Replica
from tests.bench.soak_report import Report, spread
from tests.bench.soak_words import Work

LEAST_MS, MOST_MS = 100, 200
LASTING_S = (10.0, 30.0)
LEAVING = 0.1
RAMP_S = 10.0
"""Over which the first streams are begun."""
WARM_S = RAMP_S + LASTING_S[1]
"""After which there are streams of every age."""
GROWTH = 0.05
"""By which part the memory of the last quarter may exceed that of the first after warming up."""
NOTICE_S = 1.5
"""A stream with less than this before it may be over before anybody notices."""


class Samples(Struct):
    """What was seen of a replica every second."""

    at_s: list[float] = field(default_factory=list)
    rss_kb: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    async def take(self, replica: Replica) -> None:
        """Take samples until cancelled."""
        began_s = time.monotonic()
        while True:
            self.at_s.append(time.monotonic() - began_s)
            self.rss_kb.append(replica.rss_kb())
            self.files.append(replica.files())
            await asyncio.sleep(1)


class Crowd:
    """The streams' clients."""

    def __init__(self, client: Client, replicas: int) -> None:
        self.calls: list[Call] = []
        """Those that have ended."""
        self.last: list[Call] = []
        """Those that were left at the end of the run."""
        self._client = client
        self._fresh = _calls(replicas)

    async def flow(self, count: int, seconds: float) -> None:
        """Keep so many streams under way, and leave them all at the end."""
        end_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(self._repeat(RAMP_S * number / count, end_s))

    async def _repeat(self, wait_s: float, end_s: float) -> None:
        await asyncio.sleep(wait_s)
        while (rest_s := end_s - time.monotonic()) > 0:
            call = next(self._fresh)
            leaves_last = rest_s < (call.leave_after_s or call.work.about_s * 1.2)
            if leaves_last:
                call.leave_after_s = rest_s
            await self._client.make(call)
            is_last = leaves_last and call.end is End.LEFT
            (self.last if is_last else self.calls).append(call)


def _calls(replicas: int) -> Iterator[Call]:
    """Streams of all lengths, without end."""
    for request_id in ids():
        events = int(random.uniform(*LASTING_S) * 2000 / (LEAST_MS + MOST_MS))
        work = Work(events, LEAST_MS, MOST_MS)
        call = Call(id=request_id, work=work, stream=True, server=random.randrange(replicas))
        if random.random() < LEAVING:
            call.leave_after_s = random.uniform(0, work.about_s)
        yield call


async def run(seconds: float, count: int, replicas: int) -> bool:
    """Run, judge and report. Returns whether every rule has been kept."""
    report = Report(f"streams: {count} at once for {seconds:.0f} s, replicas: {replicas}")
    with Cluster(replicas) as cluster:
        files = [replica.files() for replica in cluster.replicas]
        client = Client([replica.port for replica in cluster.replicas])
        crowd = Crowd(client, replicas)
        samples = [Samples() for _ in cluster.replicas]
        taking = [
            asyncio.create_task(sample.take(replica))
            for sample, replica in zip(samples, cluster.replicas, strict=True)
        ]
        try:
            await crowd.flow(count, seconds)
        finally:
            for task in taking:
                task.cancel()
        _judge_calls(report, [*crowd.calls, *crowd.last], seconds)
        for number, sample in enumerate(samples, 1):
            _judge_samples(report, number, sample)
        await asyncio.sleep(NOTICE_S)
        hangups = cluster.hangups()
        _judge_leaving(report, "in mid run", crowd.calls, hangups)
        _judge_leaving(report, "all at once at the end", crowd.last, hangups)
        await client.close()
        await judge_rest(cluster, files, report)
        expired = cluster.reaped()
        report.rule("every claim was settled", [f"{expired} expired"] if expired else [])
    judge_logs(cluster, report)
    return not report.broken


def _judge_calls(report: Report, calls: list[Call], seconds: float) -> None:
    ends = Counter(call.end for call in calls)
    events = sum(call.events for call in calls)
    told = ", ".join(f"{n} {end}" for end, n in ends.most_common())
    report.fact(f"{len(calls)} streams ({told}), {events} events, {events / seconds:.0f}/s")
    report.rule(
        "every stream is whole and its own, unless its client left",
        [f"{c.id}: {c.end} {c.what}" for c in calls if c.end not in (End.WHOLE, End.LEFT)],
    )


def _judge_samples(report: Report, number: int, samples: Samples) -> None:
    """Judge the memory and the files of a replica after it had warmed up."""
    warm = [place for place, at_s in enumerate(samples.at_s) if at_s > WARM_S]
    if len(warm) < 8:
        return report.fact(
            f"too short a run to judge memory: it takes more than {WARM_S + 8:.0f} s"
        )
    at_s, rss, files = (
        [values[place] for place in warm]
        for values in (samples.at_s, samples.rss_kb, samples.files)
    )
    quarter = len(warm) // 4
    first, last = statistics.mean(rss[:quarter]), statistics.mean(rss[-quarter:])
    slope, _ = statistics.linear_regression(at_s, rss)
    report.fact(
        f"replica {number}: RSS {samples.rss_kb[0] / 1024:.1f} MB at the start, after warming up "
        f"{first / 1024:.1f} MB in the first quarter and {last / 1024:.1f} MB in the last, "
        f"{slope:+.1f} KB/s; open files {min(files)} to {max(files)}"
    )
    grown = last / first - 1
    report.rule(
        f"replica {number}'s memory is flat after warming up",
        [f"grown by {grown:.1%}"] if grown > GROWTH else [],
    )
    more = statistics.mean(files[-quarter:]) / statistics.mean(files[:quarter]) - 1
    report.rule(
        f"replica {number}'s open files do not grow", [f"by {more:.1%}"] if more > GROWTH else []
    )


def _judge_leaving(report: Report, when: str, calls: list[Call], hangups: dict[str, float]) -> None:
    """Judge whether the engine has seen those leave that left in the middle of a stream."""
    left = [call for call in calls if call.end is End.LEFT and call.events]
    late = [hangups[call.id] - call.ended_s for call in left if call.id in hangups]
    report.fact(f"{len(left)} left {when}; until the engine saw it: {spread(late)}")
    report.rule(
        f"the engine sees who leaves {when}",
        [
            f"{call.id}: not seen, {call.events} of {call.work.events} events"
            for call in left
            if call.id not in hangups
            and (call.work.events - call.events) * LEAST_MS / 1000 > NOTICE_S
        ],
    )
