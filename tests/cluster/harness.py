"""A real cluster on this machine: Redis, engines, replicas and nginx, each its own process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import redis
import yaml

from tests.cluster import forked

ROOT = Path(__file__).resolve().parents[2]
ADMIN_KEY = "sk-concord-admin-of-the-tests"
SECRET = "concord-secret-of-the-tests"
START_S = 20.0
PATIENT = {"socket_timeout_ms": 1000}
"""On two cores the processes take turns, and a turn can last longer than the usual timeout."""
HTTP = httpx.Client(timeout=5)
"""For questions to engines and replicas; a client per question would cost more than its answer."""


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(ready: Callable[[], Any], what: str, timeout_s: float = START_S) -> Any:
    """Poll until something holds; returns what it answered. Fails loudly."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if answer := ready():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true within {timeout_s} s")


class Process:
    """A `concord` command, its log kept in a file."""

    def __init__(
        self, name: str, args: Sequence[str], folder: Path, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._args = args
        self._env = {**os.environ, **env}
        self.process: BaseProcess | None = None

    def start(self) -> None:
        """Start, or start again."""
        self.process = forked.start(self._args, self._env, ROOT, self.log)

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self.process is not None
        assert self.process.pid is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.process is not None and self.process.is_alive()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """`kill -9`, and wait."""
        if self.process and self.is_running:
            self.process.kill()
        self.wait()

    def stop(self) -> int:
        """SIGTERM, and wait for the exit status."""
        if self.process and self.is_running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_s: float = START_S) -> int:
        """Wait for the end; returns the exit status."""
        if self.process is None:
            return 0
        self.process.join(timeout_s)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"{self.name} did not end; its log: {self.text()[-2000:]}")
        return self.process.exitcode

    def text(self) -> str:
        """All it has logged."""
        return self.log.read_text("utf-8") if self.log.exists() else ""

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of its log with this message, oldest first."""
        lines = (line for line in self.text().splitlines() if f'"msg":"{name}"' in line)
        return [json.loads(line) for line in lines]


class Engine(Process):
    """A simulated engine with its control door."""

    def __init__(self, name: str, folder: Path, **options: object) -> None:
        self.port = free_port()
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        args = ["engine", "--port", str(self.port), "--name", name, *flags]
        super().__init__(name, args, folder, {})

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def location(self) -> str:
        """Its location while Redis is on this host."""
        return f"local-{self.port}"

    def counters(self) -> dict[str, Any]:
        """What it has seen."""
        return HTTP.get(f"{self.url}/control").raise_for_status().json()

    def fault(self, **fault: object) -> None:
        """Make it misbehave."""
        HTTP.post(f"{self.url}/control", json={"fault": fault}).raise_for_status()

    def heal(self, *, counters: bool = False) -> None:
        """Make it behave; with `counters`, forget what it has seen, too."""
        HTTP.delete(f"{self.url}/control", params={"counters": "1"} if counters else {})

    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            return HTTP.get(f"{self.url}/health").is_success
        except httpx.TransportError:
            return False


class Replica(Process):
    """A `concord serve`."""

    def __init__(
        self,
        name: str,
        folder: Path,
        config: Path,
        redis_url: str,
        drain_delay_s: float = 0.0,
        host: str = "127.0.0.1",
        secret: str = SECRET,
    ) -> None:
        self.port = free_port()
        place = ["--host", host, "--port", str(self.port)]
        args = ["serve", "--config", str(config), *place, f"--drain-delay={drain_delay_s}"]
        env = {"REDIS_URL": redis_url, "CONCORD_ADMIN_KEY": ADMIN_KEY, "CONCORD_SECRET": secret}
        super().__init__(name, args, folder, env)

    @property
    def url(self) -> str:
        """Its own address, past the load balancer."""
        return f"http://127.0.0.1:{self.port}"

    def readiness(self) -> tuple[int, str]:
        """Status code and status word of `/readyz`; (0, "") while nobody answers."""
        try:
            answer = HTTP.get(f"{self.url}/readyz", timeout=2)
        except httpx.TransportError:
            return 0, ""
        return answer.status_code, answer.json()["status"]

    def config_digest(self) -> str:
        """Of the configuration that it serves by."""
        answer = HTTP.get(f"{self.url}/readyz").raise_for_status()
        return str(answer.json()["config_digest"])

    def is_settled(self) -> bool:
        """Whether it serves, or has given up."""
        return self.readiness()[0] == 200 or not self.is_running

    def is_ready(self) -> bool:
        """Whether it takes requests and has all it needs for them."""
        return self.readiness() == (200, "ready")

    @property
    def id(self) -> str:
        """The id it has given itself at its last start; its claims begin with it."""
        return str(self.events("started")[-1]["replica"])


class Coordinator(Process):
    """A `concord coordinator`."""

    def __init__(self, name: str, folder: Path, config: Path, redis_url: str) -> None:
        self.port = free_port()
        args = ["coordinator", "--config", str(config), "--port", str(self.port)]
        env = {"REDIS_URL": redis_url, "CONCORD_ADMIN_KEY": ADMIN_KEY, "CONCORD_SECRET": SECRET}
        super().__init__(name, args, folder, env)

    def readiness(self) -> dict[str, Any]:
        """What it says of itself; nothing while it does not answer."""
        try:
            return dict(HTTP.get(f"http://127.0.0.1:{self.port}/readyz", timeout=2).json())
        except httpx.TransportError:
            return {}

    def leads(self) -> bool:
        """Whether it takes itself for the leader."""
        return self.is_running and self.readiness().get("role") == "leader"

    @property
    def id(self) -> str:
        """The id it has given itself at its last start, under which it holds the lease."""
        return str(self.events("started")[-1]["replica"])


class Nginx:
    """nginx with the configuration that ships, pointed at the test's replicas."""

    def __init__(self, folder: Path, replicas: Sequence[Replica]) -> None:
        self.port = free_port()
        shipped = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
        servers = "\n".join(f"server 127.0.0.1:{replica.port};" for replica in replicas)
        text = re.sub(r"(server [\d.]+:\d+;\s*)+", servers + "\n", shipped, count=1)
        text = re.sub(r"listen [^;]+;", f"listen 127.0.0.1:{self.port};", text)
        self._folder = folder
        folder.mkdir()
        (folder / "nginx.conf").write_text("daemon off;\nuser root;\n" + text, "utf-8")

    @property
    def url(self) -> str:
        """Where clients come to."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait until it listens."""
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        command = [nginx, "-p", str(self._folder), "-c", "nginx.conf", "-e", "stderr"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._listens, "nginx listening")

    def stop(self) -> None:
        """Stop at once."""
        self._process.terminate()
        self._process.wait(10)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Cluster:
    """Engines, replicas on one Redis, and nginx in front when asked for."""

    def __init__(
        self,
        folder: Path,
        redis_url: str,
        *,
        engines: Mapping[str, Mapping[str, object]] | None = None,
        weights: Sequence[float] = (),
        models: Callable[[list[Engine]], list[dict[str, Any]]] | None = None,
        models_of_first: Callable[[list[Engine]], list[dict[str, Any]]] | None = None,
        routing: Mapping[str, Any] | None = None,
        keys: Sequence[Mapping[str, Any]] | None = None,
        replicas: int = 3,
        coordinators: int = 0,
        drain_delay_s: float = 0.0,
        nginx: bool = False,
    ) -> None:
        self.folder = folder
        self.redis_url = redis_url
        self.redis: redis.Redis = redis.Redis.from_url(redis_url, decode_responses=True)
        options = engines or {"engine-a": {}, "engine-b": {}}
        self.engines = [Engine(name, folder, **flags) for name, flags in options.items()]
        self.config = folder / "config"
        self.config.mkdir()
        described = models(self.engines) if models else [self._model(weights)]
        self.write("models.yaml", {"models": described})
        # Tests of draws have one client, who would be kept on one endpoint.
        # Many requests at once, half of which fail over, are what no budget is meant for.
        usual = {"affinity": {"enabled": False}, "retry_budget": {"enabled": False}}
        self.write("routing.yaml", {"state": PATIENT, **usual, **(routing or {})})
        if keys is not None:
            self.write("keys.yaml", {"keys": list(keys)})
        configs = [self.config] * replicas
        if models_of_first:  # the first replica is given a view of its own
            configs[0] = Path(shutil.copytree(self.config, folder / "config-of-first"))
            different = yaml.safe_dump({"models": models_of_first(self.engines)})
            (configs[0] / "models.yaml").write_text(different, "utf-8")
        self.replicas = [
            Replica(f"replica-{n}", folder, config, redis_url, drain_delay_s)
            for n, config in enumerate(configs, 1)
        ]
        self.coordinators = [
            Coordinator(f"coordinator-{n}", folder, self.config, redis_url)
            for n in range(1, coordinators + 1)
        ]
        self.nginx = Nginx(folder / "nginx", self.replicas) if nginx else None
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """Where clients come to: nginx, else the first replica."""
        return self.nginx.url if self.nginx else self.replicas[0].url

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file of the config folder."""
        (self.config / name).write_text(yaml.safe_dump(dict(content)), "utf-8")

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        for process in (*self.engines, *self.replicas, *self.coordinators):
            process.start()
            self._stack.callback(process.kill)
        for engine in self.engines:
            wait_until(engine.is_up, f"{engine.name} up")
        for replica in self.replicas:
            wait_until(replica.is_settled, f"{replica.name} serving")
            assert replica.is_running, f"{replica.name} did not start: {replica.text()[-2000:]}"
        for coordinator in self.coordinators:
            wait_until(coordinator.readiness, f"{coordinator.name} up")
        if self.nginx:
            self.nginx.start()
            self._stack.callback(self.nginx.stop)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        self.redis.close()

    def reset(self) -> None:
        """For the next test: every process up and well, nothing in flight, nothing remembered."""
        for replica in self.replicas:
            if replica.is_running and replica.readiness()[1] == "draining":
                replica.kill()
            if not replica.is_running:
                replica.start()
        for engine in self.engines:
            if not engine.is_running:
                engine.start()
            wait_until(engine.is_up, f"{engine.name} up")
            engine.heal()
        for replica in self.replicas:
            wait_until(replica.is_ready, f"{replica.name} ready")
        live = len(self.replicas)
        wait_until(lambda: len(self.live_replicas()) == live, "all replicas known to be live")
        wait_until(lambda: not any(e.counters()["active"] for e in self.engines), "engines idle")
        wait_until(lambda: not self.redis.keys("gw:{m:*}:claim*"), "no claims")
        for engine in self.engines:
            engine.heal(counters=True)
        if left := self.redis.keys("gw:{m:*"):
            self.redis.delete(*left)

    def live_replicas(self) -> set[str]:
        """Ids of this cluster's running replicas that Redis has a heartbeat of."""
        return self.redis.hgetall("gw:{cluster}:replicas").keys() & {r.id for r in self.replicas}

    def row(self, model: str = "m") -> dict[str, str]:
        """The endpoints hash of a model."""
        return self.redis.hgetall(f"gw:{{m:{model}}}:endpoints")

    def claims(self, model: str = "m") -> list[str]:
        """Ids of the claims that stand."""
        return self.redis.zrange(f"gw:{{m:{model}}}:claims", 0, -1)

    def claims_of(self, replica: Replica, model: str = "m") -> list[str]:
        """Those of them that a replica was granted since its last start."""
        return [claim for claim in self.claims(model) if claim.startswith(f"{replica.id}.")]

    def inflight(self, model: str = "m") -> dict[str, int]:
        """In-flight counts by location, where they are not zero."""
        fields = self.row(model).items()
        return {k.rpartition(":")[0]: int(v) for k, v in fields if k.endswith(":inflight")}

    def is_idle(self, model: str = "m") -> bool:
        """No claim, nothing in flight, nothing claimed."""
        claimed = self.redis.hlen(f"gw:{{m:{model}}}:claimed")
        return not self.claims(model) and not self.inflight(model) and not claimed

    def reaped(self, model: str = "m") -> int:
        """How many claims have been left to expire instead of being settled."""
        return int(self.redis.zcard(f"gw:{{m:{model}}}:reaped"))

    def _model(self, weights: Sequence[float]) -> dict[str, Any]:
        routes = [
            {"kind": "vllm", "base_url": engine.url, "weight": weight}
            for engine, weight in zip(
                self.engines, weights or [1.0] * len(self.engines), strict=True
            )
        ]
        return {"id": "m", "name": "M", "provider": "vllm", "route": routes}


def body(content: str = "hi", **fields: Any) -> dict[str, Any]:
    """A chat request for the model `m`."""
    return {"model": "m", "messages": [{"role": "user", "content": content}], **fields}


def ids(prefix: str, count: int) -> Iterator[str]:
    """Request ids to replay draws with."""
    return (f"{prefix}-{n}" for n in range(count))
