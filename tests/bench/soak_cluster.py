"""The cluster that is soaked: replicas on one private Redis, and an engine with two addresses."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import redis
import yaml

from gateway.state.server import PrivateRedis, find_server
from tests.bench import machine
from tests.bench.machine import HOST, Unfit
from tests.bench.processes import PAGE_KB, Process, wait_up
from tests.bench.soak_words import MODEL, UPSTREAM_MODEL

LEASE_S = 3.0
START_S = 20.0
ROUTING = {
    "server": {"drain_delay_s": 0, "drain_timeout_s": 2},
    "state": {
        "lease_s": LEASE_S,
        "socket_timeout_ms": 500,  # the cores are shared with all else
        "heartbeat_s": 0.5,
        "replica_ttl_s": 1.5,
    },
}
SICK = ("unexpected_error", "script_bug", "Traceback", "never retrieved")
"""What no log may hold."""
TAG = f"gw:{{m:{MODEL}}}"
_FAILED_OVER = re.compile(r'"attempts":(?:[2-9]|\d\d)')
_EVENT = re.compile(r'"msg":"([^"]*)"')


class Replica:
    """A `concord serve` that can be killed and started again; each life has a log of its own."""

    def __init__(self, name: str, folder: Path, redis_url: str, cores: Collection[int]) -> None:
        self.port = machine.free_ports(1)[0]
        self.logs: list[Path] = []
        self._name = name
        self._folder = folder
        self._cores = cores
        self._command = [sys.executable, "-m", "gateway", "serve"]
        self._command += ["--config", str(folder / "config"), "--port", str(self.port)]
        self._env = {"REDIS_URL": redis_url, "CONCORD_SECRET": "soak"}
        self._process: Process

    def start(self) -> None:
        """Begin a life."""
        self.logs.append(self._folder / f"{self._name}.{len(self.logs) + 1}.log")
        self._process = Process(self._command, self._cores, self.logs[-1], **self._env).__enter__()

    def stop(self) -> None:
        """End it in order."""
        self._process.__exit__()

    def kill(self) -> None:
        """End it without a word."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(START_S)

    @property
    def has_ended(self) -> bool:
        """Whether it is not running."""
        return self._process.has_ended

    def fault(self) -> str:
        """Why it is not ready, if it is not. Raises httpx's errors."""
        answer = httpx.get(f"http://{HOST}:{self.port}/readyz", trust_env=False)
        status = str(answer.json()["status"])
        return "" if status == "ready" else status

    def wait_up(self) -> None:
        """Wait until it is ready."""
        wait_up(self._process, self.fault, START_S)

    def files(self) -> int:
        """File descriptors that it has open."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def rss_kb(self) -> int:
        """Memory that it holds."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text("ascii").split()[1]
        return int(pages) * PAGE_KB


class Cluster:
    """All of it. Nothing outlives the context but the folder of logs, if that is to be kept."""

    def __init__(self, replicas: int) -> None:
        binary = find_server()
        if binary is None:
            raise Unfit("needs a redis-server")
        self.folder = Path(tempfile.mkdtemp(prefix="concord-soak-"))
        cores = os.sched_getaffinity(0)
        self.server = PrivateRedis(binary)
        self.redis: redis.Redis = redis.Redis.from_url(
            self.server.url, decode_responses=True, socket_timeout=2
        )
        ports = machine.free_ports(2)
        self._engine_url = f"http://{HOST}:{ports[0]}"
        command = [sys.executable, "-m", "tests.bench.soak_engine", *map(str, ports)]
        self._engine = Process(command, cores, self.folder / "engine.log")
        self._write_config(ports)
        self.replicas = [
            Replica(f"replica-{number}", self.folder, self.server.url, cores)
            for number in range(1, replicas + 1)
        ]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self.server.stop)
            self.server.start()
            stack.callback(self.redis.close)
            stack.enter_context(self._engine)
            wait_up(self._engine, lambda: self.seen() and "", START_S)
            for replica in self.replicas:
                replica.start()
                stack.callback(replica.stop)
            for replica in self.replicas:
                replica.wait_up()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        if kind is not None and not issubclass(kind, Exception):  # interrupted
            shutil.rmtree(self.folder)

    def seen(self) -> dict[str, int]:
        """What the engine has seen, as `soak_engine.Seen` has it."""
        return self._ask_engine("seen")

    def hangups(self) -> dict[str, float]:
        """When the engine noticed that a request's client had gone, by the request's id."""
        return self._ask_engine("hangups")

    def held(self) -> list[str]:
        """What Redis still holds of requests."""
        claims = self.redis.zrange(f"{TAG}:claims", 0, -1)
        claimed = self.redis.hkeys(f"{TAG}:claimed")
        row = self.redis.hgetall(f"{TAG}:endpoints")
        inflight = [f"{k}={v}" for k, v in row.items() if k.endswith(":inflight") and v != "0"]
        return [*(f"claim {claim}" for claim in sorted({*claims, *claimed})), *inflight]

    def row(self) -> dict[str, str]:
        """All that Redis remembers of the endpoints."""
        return self.redis.hgetall(f"{TAG}:endpoints")

    def reaped(self) -> int:
        """Claims that have been left to expire since Redis was last emptied."""
        return int(self.redis.zcard(f"{TAG}:reaped"))

    def read_logs(self) -> tuple[list[str], Counter[str]]:
        """Lines that no log may hold, and how often each event but requests was logged."""
        sick: list[str] = []
        events: Counter[str] = Counter()
        for log in [log for replica in self.replicas for log in replica.logs]:
            with log.open("r", encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    if any(sign in line for sign in SICK):
                        sick.append(f"{log.name}: {line.strip()[:2000]}")
                    found = _EVENT.search(line)
                    if _FAILED_OVER.search(line):
                        events["request of several attempts"] += 1
                    if found is None or found[1] != "request":
                        events[found[1] if found else f"(not JSON) {line[:80]}"] += 1
        return sick, events

    def _ask_engine(self, what: str) -> dict[str, Any]:
        answer = httpx.get(f"{self._engine_url}/{what}", trust_env=False, timeout=10)
        return answer.raise_for_status().json()

    def _write_config(self, ports: list[int]) -> None:
        route = [
            {"kind": "vllm", "base_url": f"http://{HOST}:{p}", "provider_model_id": UPSTREAM_MODEL}
            for p in ports
        ]
        model = {"id": MODEL, "name": "Soak", "provider": "vllm", "route": route}
        config = self.folder / "config"
        config.mkdir()
        for name, content in (("models", {"models": [model]}), ("routing", ROUTING)):
            (config / f"{name}.yaml").write_text(yaml.safe_dump(content), "utf-8")


def wait_until_nothing_is_held(cluster: Cluster, timeout_s: float) -> float:
    """Wait until Redis holds no claim and the engine is idle; returns how long that took."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < timeout_s:
        if not cluster.held() and not cluster.seen()["busy"]:
            break
        time.sleep(0.1)
    return time.monotonic() - began_s
