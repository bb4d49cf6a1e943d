"""Concord itself: one replica with a key file, on a private Redis behind a unix socket."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from gateway.state.server import PrivateRedis, find_server
from tests.bench import machine, payloads
from tests.bench.machine import HOST, Unfit
from tests.bench.processes import Process
from tests.bench.running import HEADERS_WITH_KEY, KEY, Gateway, Running, Setup


@contextmanager
def start_concord(setup: Setup) -> Iterator[Running]:
    """Start Redis on the other cores and the replica on the gateway's."""
    binary = find_server()
    if binary is None:
        raise Unfit("needs a redis-server")
    model = {
        "id": payloads.MODEL,
        "name": "Bench",
        "provider": "vllm",
        "route": [{"kind": "vllm", "base_url": f"{url}/v1"} for url in setup.upstreams],
    }
    files = {
        "models.yaml": {"models": [model]},
        "keys.yaml": {"keys": [{"id": "bench", "key": KEY, "role": "pro"}]},
        "routing.yaml": {"auth": "keys", "server": {"drain_delay_s": 0, "drain_timeout_s": 1}},
    }
    config = setup.folder / "config"
    config.mkdir()
    for name, content in files.items():
        (config / name).write_text(yaml.safe_dump(content), "utf-8")
    with PrivateRedis(binary) as redis:
        assert redis.process is not None
        os.sched_setaffinity(redis.process.pid, setup.other_cores)
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(config)]
        command += ["--host", HOST, "--port", str(setup.port)]
        env = {"REDIS_URL": redis.url, "CONCORD_SECRET": "bench"}
        with Process(command, setup.cores, setup.folder / "log", **env) as process:
            url = f"http://{HOST}:{setup.port}"
            yield Running(url, process, HEADERS_WITH_KEY, redis.process.pid)


CONCORD = Gateway(
    "Concord",
    machine.concord_version,
    start_concord,
    "one replica, keys.yaml, its access log, no tracing; Redis on a unix socket",
)
