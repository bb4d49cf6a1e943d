"""The gateways to compare: how each is told of two upstreams, and started on its core.

All listen on loopback, with one process or worker. Concord is in `concord.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench import machine, payloads, peers
from tests.bench.concord import CONCORD
from tests.bench.machine import HOST
from tests.bench.processes import Process, fill
from tests.bench.running import HEADERS_WITH_KEY, KEY, Gateway, Running, Setup
from tests.bench.upstreams import HEADERS, nginx

PLAIN_PROXY = """\
    upstream engines {
        server @A@;
        server @B@;
        keepalive 2048;
        keepalive_requests 1000000000;
        keepalive_timeout 3600s;
    }
    server {
        listen @HOST@:@PORT@ backlog=2048;
        location / {
            proxy_pass http://engines;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 600s;
        }
    }
"""
LITELLM_ENV = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
    "AIOHTTP_CONNECTOR_LIMIT": "4096",
    "AIOHTTP_CONNECTOR_LIMIT_PER_HOST": "4096",
}
"""No lists from the internet; as many connections to upstreams as there are streams."""


@contextmanager
def start_nginx(setup: Setup) -> Iterator[Running]:
    """Start the plain proxy."""
    a, b = (url.removeprefix("http://") for url in setup.upstreams)
    http = fill(PLAIN_PROXY, {"A": a, "B": b, "HOST": HOST, "PORT": setup.port})
    with nginx(setup.folder, http, setup.cores, "proxy") as process:
        yield Running(f"http://{HOST}:{setup.port}", process, HEADERS)


@contextmanager
def start_sglang_router(setup: Setup) -> Iterator[Running]:
    """Start the router by its Python launcher. Its metrics listen on a port of their own."""
    python = peers.install(peers.SGLANG_ROUTER) / "python"
    command = [str(python), "-m", "sglang_router.launch_router", "--host", HOST]
    command += ["--port", str(setup.port), "--worker-urls", *setup.upstreams]
    command += ["--policy", "round_robin", "--log-level", "warn", "--prometheus-host", HOST]
    command += ["--prometheus-port", str(machine.free_ports(1)[0])]
    with Process(command, setup.cores, setup.folder / "log") as process:
        yield Running(f"http://{HOST}:{setup.port}", process, HEADERS)


@contextmanager
def start_litellm(setup: Setup) -> Iterator[Running]:
    """Start the proxy: one model on two upstreams, a master key, no database."""
    routes = [
        {
            "model_name": payloads.MODEL,
            "litellm_params": {
                "model": f"openai/{payloads.MODEL}",
                "api_base": f"{url}/v1",
                "api_key": "none",
            },
        }
        for url in setup.upstreams
    ]
    config = {
        "model_list": routes,
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"telemetry": False},
    }
    file = setup.folder / "config.yaml"
    file.write_text(json.dumps(config), "utf-8")  # JSON is YAML
    command = [str(peers.install(peers.LITELLM) / "litellm"), "--config", str(file)]
    command += ["--host", HOST, "--port", str(setup.port), "--num_workers", "1"]
    command += ["--telemetry", "False"]
    with Process(command, setup.cores, setup.folder / "log", **LITELLM_ENV) as process:
        yield Running(f"http://{HOST}:{setup.port}", process, HEADERS_WITH_KEY)


def _installed(peer: peers.Peer) -> str:
    peers.install(peer)
    return peer.version


NGINX = Gateway(
    "nginx", machine.nginx_version, start_nginx, "a plain proxy, one process, unbuffered: the floor"
)
SGLANG_ROUTER = Gateway(
    "sglang-router",
    lambda: _installed(peers.SGLANG_ROUTER),
    start_sglang_router,
    "round robin, no key, log level warn. It leaves TCP_NODELAY off, so that a client that delays "
    "its acknowledgements, as is usual, waits some 40 ms for the end of an unpaced stream",
)
LITELLM = Gateway(
    "LiteLLM",
    lambda: _installed(peers.LITELLM),
    start_litellm,
    "its proxy, one worker, simple shuffle, a master key, no database, its own access log",
)
ALL = (NGINX, CONCORD, SGLANG_ROUTER, LITELLM)
