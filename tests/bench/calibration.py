"""`python -m tests.bench.calibration`: what calibration costs the coordinator.

100 models of 8 endpoints each, of which 1,000 attempts end in a second, as replicas would note them
in Redis. The windows of 15 minutes are full before: the coordinator begins with 900,000 outcomes.
Counted are the processor seconds of its process alone.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import redis
import yaml

from gateway.state.keys import Keys
from gateway.state.outcomes import Ended, write_ended
from gateway.state.server import PrivateRedis, find_server
from tests.bench import machine

MODELS, ENDPOINTS, PER_S, WINDOW_S = 100, 8, 1000, 900
TICK_S = 0.1
PARAMS = {"latency_window_sec": WINDOW_S, "budget_alpha": 0.5}
STORED = WINDOW_S * PER_S


def outcome(numbers: random.Random) -> str:
    """One in a hundred is a failure."""
    ended = Ended(
        location=f"e{numbers.randrange(ENDPOINTS)}",
        is_ok=numbers.random() > 0.01,
        ttft_ms=int(numbers.lognormvariate(5.5, 0.6)) + 1,
        prompt_tokens=int(numbers.lognormvariate(6, 1.2)) + 1,
        output_tokens=int(numbers.lognormvariate(5, 0.8)) + 1,
    )
    return write_ended(ended)


def describe(folder: Path) -> None:
    """The models' files."""
    routes = [
        {
            "location": f"e{number}",
            "provider": f"cloud-{number}",
            "base_url": f"http://127.0.0.1:9/e{number}/v1",
            "pricing": {"prompt": str(0.1 * (number + 1)), "completion": str(0.4 * (number + 1))},
        }
        for number in range(ENDPOINTS)
    ]
    models: list[dict[str, Any]] = [
        {
            "id": f"m{number}",
            "name": "M",
            "provider": "vllm",
            "router": "routewise",
            "router_params": PARAMS,
            "route": routes,
        }
        for number in range(MODELS)
    ]
    (folder / "models.yaml").write_text(yaml.safe_dump({"models": models}))


def streams() -> list[str]:
    """Where outcomes are kept, of each model."""
    keys = Keys("gw")
    return [keys.model(f"m{number}")["outcomes"] for number in range(MODELS)]


def fill(client: redis.Redis, numbers: random.Random) -> None:
    """Store what a window holds."""
    now_ms = int(time.time() * 1000)
    each = STORED // MODELS
    for stream in streams():
        pipe = client.pipeline(transaction=False)
        for number in range(each):
            at_ms = now_ms - (each - number) * WINDOW_S * 1000 // each
            pipe.xadd(stream, {"end": outcome(numbers)}, id=f"{at_ms}-{number % 1000}")
        pipe.execute()


def load(client: redis.Redis, numbers: random.Random, seconds: float) -> None:
    """Note outcomes as they end, evenly."""
    began_s, due = time.monotonic(), 0
    all_streams = streams()
    while (passed_s := time.monotonic() - began_s) < seconds:
        pipe = client.pipeline(transaction=False)
        while due < passed_s * PER_S:
            pipe.xadd(all_streams[due % MODELS], {"end": outcome(numbers)})
            due += 1
        pipe.execute()
        time.sleep(TICK_S)


@contextmanager
def coordinator(folder: Path, url: str) -> Iterator[tuple[int, str]]:
    """A coordinator that leads: its process id, and where it says how it is."""
    port = machine.free_ports(1)[0]
    command = [sys.executable, "-m", "coordinator", "--config", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    env = {**os.environ, "REDIS_URL": url, "CONCORD_ADMIN_KEY": "sk-concord-admin-of-the-bench"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            yield process.pid, f"http://127.0.0.1:{port}/readyz"
        finally:
            process.terminate()
            process.wait(30)


def used_s(pid: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until_published(client: redis.Redis) -> float:
    """Wait for a profile of every model; returns how long that took, in seconds."""
    keys, began_s = Keys("gw"), time.monotonic()
    profiles = [keys.model(f"m{number}")["profile"] for number in range(MODELS)]
    while client.exists(*profiles) < MODELS:
        if time.monotonic() - began_s > 120:
            raise machine.Unfit("not all models have a profile after two minutes")
        time.sleep(0.2)
    return time.monotonic() - began_s


def unread(client: redis.Redis) -> int:
    """Outcomes that the coordinator has not read by now."""
    lags = [group["lag"] or 0 for s in streams() for group in client.xinfo_groups(s)]
    return sum(lags)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.calibration")
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    binary = find_server()
    if binary is None:
        print("bench: needs a redis-server", file=sys.stderr)
        return 1
    numbers = random.Random(1)
    print(f"{machine.describe()}\n")
    with PrivateRedis(binary) as server, tempfile.TemporaryDirectory() as name:
        client = redis.Redis.from_url(server.url, decode_responses=True)
        describe(Path(name))
        fill(client, numbers)
        with coordinator(Path(name), server.url) as (pid, readiness):
            begins_s = until_published(client)
            load(client, numbers, 5)
            before_s, began_s = used_s(pid), time.monotonic()
            load(client, numbers, args.seconds)
            spent_s, passed_s = used_s(pid) - before_s, time.monotonic() - began_s
            role = httpx.get(readiness).json()["role"]
            print(
                f"{MODELS} models × {ENDPOINTS} endpoints, {PER_S} outcomes/s: "
                f"{spent_s / passed_s:.2f} of a core over {passed_s:.0f} s, {unread(client)} "
                f"unread at the end; {begins_s:.0f} s to begin with {STORED} stored "
                f"({role})"
            )
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
