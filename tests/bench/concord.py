"""Concord itself: one replica with a key file, on a private Redis behind a unix socket."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from gateway.state.server import PrivateRedis, find_server
from tests.bench import machine, payloads
from tests.bench.machine import HOST, Unfit
from tests.bench.processes import Process
from tests.bench.running import HEADERS_WITH_KEY, KEY, Gateway, Running, Setup

SERVER = {"drain_delay_s": 0, "drain_timeout_s": 1}
NOTHING: Mapping[str, str] = {}

FROM = """\
import os, runpy, sys
tree = sys.argv.pop(1)
sys.path.insert(0, tree)
os.chdir(tree)
runpy.run_module("gateway", run_name="__main__")
"""
"""A program that runs the gateway of another tree than the installed one."""


@contextmanager
def start_concord(
    setup: Setup,
    *,
    tree: Path = machine.ROOT,
    under: Sequence[str] = (),
    env: Mapping[str, str] = NOTHING,
    fields: Mapping[str, object] = NOTHING,
    **sections: object,
) -> Iterator[Running]:
    """Start Redis on the other cores and the replica on the gateway's.

    `tree` is where its source is, `under` a command that runs it, `fields` are of the model, and
    `sections` go into routing.yaml.
    """
    binary = find_server()
    if binary is None:
        raise Unfit("needs a redis-server")
    model = {
        "id": payloads.MODEL,
        "name": "Bench",
        "provider": "vllm",
        "route": [{"kind": "vllm", "base_url": f"{url}/v1"} for url in setup.upstreams],
        **fields,
    }
    files = {
        "models.yaml": {"models": [model]},
        "keys.yaml": {"keys": [{"id": "bench", "key": KEY, "role": "pro"}]},
        "routing.yaml": {"auth": "keys", "server": SERVER} | sections,
    }
    config = setup.folder / "config"
    config.mkdir()
    for name, content in files.items():
        (config / name).write_text(yaml.safe_dump(content), "utf-8")
    with PrivateRedis(binary) as redis:
        assert redis.process is not None
        os.sched_setaffinity(redis.process.pid, setup.other_cores)
        command = [*under, sys.executable, "-c", FROM, str(tree), "serve", "--config", str(config)]
        command += ["--host", HOST, "--port", str(setup.port)]
        own = {"REDIS_URL": redis.url, "CONCORD_SECRET": "bench"}
        with Process(command, setup.cores, setup.folder / "log", **own, **env) as process:
            url = f"http://{HOST}:{setup.port}"
            yield Running(url, process, HEADERS_WITH_KEY, redis.process.pid)


CONCORD = Gateway(
    "Concord",
    machine.concord_version,
    start_concord,
    "one replica, keys.yaml, its access log, no tracing; Redis on a unix socket",
)
