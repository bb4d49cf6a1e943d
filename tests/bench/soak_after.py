"""What must be true of a cluster once its clients have gone."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence

from gateway.dispatch.http1 import KEEPALIVE_S
from tests.bench.soak_cluster import LEASE_S, Cluster, wait_until_nothing_is_held
from tests.bench.soak_report import Report

SETTLE_S = 1.5 * LEASE_S + 2.0
"""A lease and a half, after which nothing of the dead is left, and some for a busy machine."""
FILES = 2
"""How many more open files than at the start are nothing to speak of."""


async def judge_rest(cluster: Cluster, files_before: Sequence[int], report: Report) -> None:
    """Judge what is left behind: in Redis, towards the engine, in the replicas."""
    took_s = wait_until_nothing_is_held(cluster, SETTLE_S)
    seen = cluster.seen()
    report.fact(
        f"nothing was held any more after {took_s:.1f} s; "
        f"claims left to expire since Redis last started: {cluster.reaped()}"
    )
    report.rule("no claim, nothing in flight", cluster.held())
    report.rule(
        "no request under way at the engine", [f"{seen['busy']} are"] if seen["busy"] else []
    )
    report.fact(f"idle connections to the engine then: {seen['open'] - seen['busy']}")
    await asyncio.sleep(KEEPALIVE_S + 2)
    still_open = cluster.seen()["open"]
    report.rule(
        "no connection to the engine after the idle expiry",
        [f"{still_open} are open"] if still_open else [],
    )
    files = [(r.files(), before) for r, before in zip(cluster.replicas, files_before, strict=True)]
    report.fact("open files, at the start and now: " + ", ".join(f"{b} {n}" for n, b in files))
    report.rule(
        f"open files are back to those of the start (±{FILES})",
        [f"{now} instead of {before}" for now, before in files if abs(now - before) > FILES],
    )
    report.rule(
        "each request reached the engine whole and at most once",
        [f"{seen[what]} {what}" for what in ("mismatched", "repeated") if seen[what]],
    )
    odd = [f"{field}={value}" for field, value in cluster.row().items() if field != "at_ms"]
    report.fact(f"what Redis remembers of the endpoints: {', '.join(odd) or 'nothing bad'}")


def judge_logs(cluster: Cluster, report: Report) -> None:
    """Judge the logs of all replicas' lives, once those have ended; keep them if anything is."""
    sick, events = cluster.read_logs()
    told = ", ".join(f"{count} {name}" for name, count in sorted(events.items()))
    report.fact(f"logged besides requests: {told}")
    report.rule("nothing unexpected in any log", sick)
    if report.broken:
        report.fact(f"logs are kept in {cluster.folder}")
    else:
        shutil.rmtree(cluster.folder)
