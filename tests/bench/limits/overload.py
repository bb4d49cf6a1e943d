"""Five minutes of four times too much, from a random second, by the real minute.

Three replicas, one endpoint of 600 requests and 100,000 tokens a minute, and a key of 100 requests
a minute of its own. What was admitted, and when, is read from Redis by its own clock.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

from gateway.state.server import PrivateRedis, find_server
from tests.bench.machine import Unfit
from tests.cluster.admits import Admits
from tests.cluster.harness import Cluster, Engine
from tests.cluster.load import clients, until
from tests.cluster.overload import Asked, Overload

MINUTE_MS = 60_000
LIMITS = {"rpm": 600, "tpm": 100_000}
KEYS = [{"id": "one", "key": "sk-one"}, {"id": "often", "key": "sk-often", "rpm": 100}]
SMALL, LARGE = (28, 5), (200, 100)
ASKED = [Asked(key, *size) for size in (SMALL, LARGE) for key in ("sk-one", "sk-often")]
"""On average as many tokens a request as use up both limits at a time."""
PATIENT = {"state": {"socket_timeout_ms": 2000}}
"""A machine that is slow for a moment must not look like a Redis that is away."""
ENGINE = {"ttft_ms": 0, "tokens_per_s": 100_000, "output_tokens": 100}
LEAST_USE = 0.95


def measure(seconds: float) -> tuple[str, list[str]]:
    """Returns what was seen, in markdown, and what was not as it must be."""
    return asyncio.run(_measure(seconds))


async def _measure(seconds: float) -> tuple[str, list[str]]:
    load = Overload(
        asked=ASKED,
        rate=4 * LIMITS["rpm"] / 60,
        seconds=seconds,
        window_ms=MINUTE_MS,
        limits=LIMITS,
        key_limits={"sk-often": 100},
    )
    binary = find_server()
    if binary is None:
        raise Unfit("needs a redis-server")
    with (
        tempfile.TemporaryDirectory() as folder,
        PrivateRedis(binary) as server,
        Cluster(
            Path(folder),
            server.url,
            engines={"engine": ENGINE},
            models=_models,
            keys=KEYS,
            routing=PATIENT,
        ) as cluster,
    ):
        await asyncio.sleep(random.uniform(0, MINUTE_MS / 1000))
        async with clients(cluster.replicas) as https:
            with Admits(server.url) as admits:
                answers = await load.run(https)
                await until(cluster.is_idle, "all settled")
    statuses = [answer.status for answer in answers]
    refused = ", ".join(f"{n} by {kind}" for kind, n in sorted(load.kinds(answers).items()))
    last_ms = max(admit.at_ms for admit in admits.all())
    faults = load.faults(answers, admits)
    lines = [
        f"{len(answers)} requests in {seconds:.0f} s: {statuses.count(200)} served, {refused}",
        "",
        "| limit | | most in 60 s | use |",
        "|---|---:|---:|---:|",
    ]
    for kind, most in LIMITS.items():
        use = admits.use(kind, most, MINUTE_MS, last_ms)
        fullest = admits.fullest(kind, MINUTE_MS)
        lines.append(f"| {kind} | {most:,} | {fullest:,} | {use:.3f} |")
        if use < LEAST_USE:
            faults.append(f"{kind}: use is {use:.3f}")
    lines += ["", f"{len(faults)} faults", *(f"- {fault}" for fault in faults[:10])]
    return "\n".join(lines), faults


def _models(engines: list[Engine]) -> list[dict[str, Any]]:
    route = {"kind": "vllm", "base_url": engines[0].url}
    return [{"id": "m", "name": "M", "provider": "vllm", "route": [route], **LIMITS}]
