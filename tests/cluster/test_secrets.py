"""Keys, passwords and prompts stay where they belong: in no log, not in Redis, in no answer."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import redis

from tests.cluster.conftest import own_redis
from tests.cluster.harness import ADMIN_KEY, Cluster, Engine, body, wait_until

CALLER_KEY = "sk-canary-of-a-caller"
WRONG_KEY = "sk-canary-of-a-stranger"
UPSTREAM_KEY = "sk-canary-of-the-upstream"
PASSWORD = "canary-of-redis"
PROMPT = "canary-of-a-prompt"
SECRETS = (CALLER_KEY, WRONG_KEY, UPSTREAM_KEY, PASSWORD, PROMPT, ADMIN_KEY)
OURS = (UPSTREAM_KEY, PASSWORD, ADMIN_KEY, CALLER_KEY)
"""What even the caller who sent the rest may not see."""
FAST = {"ttft_ms": 0, "tokens_per_s": 0}
ERRORS = (
    {"status": 500, "body": f"no {PROMPT} with {UPSTREAM_KEY}"},
    {"status": 401, "body": {"error": {"message": f"bad key {UPSTREAM_KEY}"}}},
    {"error_frame": {"message": f"{UPSTREAM_KEY} is spent", "code": 500}},
    {"cut_after_tokens": 1},
    {"malformed_chunk": 2},
)


def described(engines: list[Engine]) -> list[dict[str, Any]]:
    routes = [
        {"kind": "vllm", "base_url": engine.url, "api_key": UPSTREAM_KEY} for engine in engines
    ]
    return [{"id": "m", "name": "M", "provider": "vllm", "route": routes}]


async def test_no_secret_and_no_prompt_shows_in_a_log_in_redis_or_in_an_error(
    tmp_path: Path,
) -> None:
    with own_redis(f"requirepass {PASSWORD}") as server:
        url = server.url.replace("unix://", f"unix://:{PASSWORD}@")
        assert server.process is not None
        # Given a cluster whose every secret is a canary
        with Cluster(
            tmp_path,
            url,
            engines={"engine-a": FAST, "engine-b": FAST},
            models=described,
            keys=[{"id": "caller", "key": CALLER_KEY}],
            routing={"state": {"lease_s": 1.5, "socket_timeout_ms": 200}},
        ) as cluster:
            # When requests succeed, fail in every way, and meet an outage of Redis
            texts = await provoke(cluster)
            for error in ERRORS:
                for engine in cluster.engines:
                    engine.fault(**error)
                cluster.redis.delete("gw:{m:m}:endpoints")  # its circuits must not hide the fault
                texts += await provoke(cluster)
            server.process.send_signal(signal.SIGSTOP)
            try:
                texts += await provoke(cluster)
            finally:
                server.process.send_signal(signal.SIGCONT)
            wait_until(cluster.is_idle, "an idle model")
            stored = everything_in(cluster.redis)
            for replica in cluster.replicas:
                assert replica.stop() == 0

            # Then the engines were sent the upstream's key
            sent = [engine.counters()["last"] for engine in cluster.engines]
            assert any(UPSTREAM_KEY in str(last["headers"]) for last in sent if last)
            # And nothing else holds any of them
            logged = "\n".join(replica.text() for replica in cluster.replicas)
            for seen in ("http_500", "http_401", "error_frame_500", "state_unavailable"):
                assert f'"error_type":"{seen}"' in logged
            assert "gw:{m:m}:endpoints" in stored
            for secret in SECRETS:
                assert secret not in logged
                assert secret not in stored
            for secret in OURS:
                assert not any(secret in text for text in texts)
            assert "Traceback" not in logged


async def provoke(cluster: Cluster) -> list[str]:
    """Bring about what a replica may want to speak of; returns the errors that clients got."""
    texts: list[str] = []
    for replica in cluster.replicas:
        async with httpx.AsyncClient(base_url=replica.url, timeout=30) as http:
            texts += await asyncio.gather(
                ask_as(http, CALLER_KEY),
                ask_as(http, WRONG_KEY),
                ask_as(http, None),
                ask_as(http, ADMIN_KEY, stream=True, pin=PROMPT),
                ask_as(http, CALLER_KEY, stream=True, pin=PROMPT),
            )
            for path in (f"/v1/models/{PROMPT}", f"/{WRONG_KEY}", "/routing", "/health/deep"):
                await http.get(path, headers={"authorization": f"Bearer {ADMIN_KEY}"})
            broken = f'{{"model": "m", "messages": "{PROMPT}'
            await http.post("/v1/chat/completions", content=broken)
    return texts


async def ask_as(
    http: httpx.AsyncClient, key: str | None, *, stream: bool = False, pin: str | None = None
) -> str:
    """Send a request that holds canaries; returns its answer when that is an error."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if pin:
        headers["x-route-pin"] = pin
    request = body(PROMPT, stream=stream, user=PROMPT)
    answer = await http.post("/v1/chat/completions", json=request, headers=headers)
    is_error = answer.status_code != 200 or '"error"' in answer.text
    return answer.text if is_error else ""


def everything_in(client: redis.Redis) -> str:
    """All keys and values, as text."""
    readers = {
        "string": client.get,
        "hash": client.hgetall,
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        "set": client.smembers,
        "list": lambda key: client.lrange(key, 0, -1),
        "stream": client.xrange,
    }
    return "\n".join(f"{key} {readers[client.type(key)](key)}" for key in client.scan_iter())
