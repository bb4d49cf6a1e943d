"""llama.cpp's servers as a cluster's engines: real weights, real tokens, real slots."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx
import redis
import yaml
from openai import AsyncOpenAI

from tests.cluster.harness import HTTP, Nginx, Process, Replica, free_port, wait_until
from tests.engine.installing import LlamaCpp

MODEL = "gemma-3-270m"
SLOTS = 2
BATCH_TOKENS = 32
"""A server looks up between batches only, and one of its usual 2,048 would last for seconds."""
CONTEXT_TOKENS = 8192
THREADS = 1
"""Of each server. Waiting threads spin, and there may be two cores for all."""


class LlamaServer(Process):
    """A `llama-server`, whose `/slots` shows what it is working on."""

    def __init__(self, name: str, folder: Path, llama: LlamaCpp) -> None:
        super().__init__(name, [], folder, {})
        self.port = free_port()
        options = {
            "model": llama.weights,
            "host": "127.0.0.1",
            "port": self.port,
            "parallel": SLOTS,
            "ctx-size": CONTEXT_TOKENS,
            "batch-size": BATCH_TOKENS,
            "threads": THREADS,
        }
        flags = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        self._args = [str(llama.server), *flags, "--offline"]

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        """Its id in state and headers while Redis is on this host."""
        return f"{MODEL}:local-{self.port}"

    def is_up(self) -> bool:
        """Whether its weights are loaded."""
        try:
            return HTTP.get(f"{self.url}/health").is_success
        except httpx.TransportError:
            return False

    def cancelled(self) -> int:
        """How many requests it has given up, by its log: asking the server would keep it from it.

        What has had no output yet is given up once a whole second passes in which the server has
        no result for anybody, and an answer of `/slots` is one.
        """
        return self.text().count("cancel task")

    def busy(self) -> list[dict[str, Any]]:
        """The slots that are at work; none of a server that is not running."""
        if not self.is_running:
            return []
        slots = HTTP.get(f"{self.url}/slots").raise_for_status().json()
        assert len(slots) == SLOTS
        return [slot for slot in slots if slot["is_processing"]]


class LlamaCluster:
    """Two llama.cpp servers behind three replicas and nginx."""

    def __init__(
        self, folder: Path, redis_url: str, llama: LlamaCpp, routing: dict[str, Any]
    ) -> None:
        self.servers = [LlamaServer(name, folder, llama) for name in ("llama-a", "llama-b")]
        config = folder / "config"
        config.mkdir()
        routes = [{"kind": "vllm", "base_url": server.url} for server in self.servers]
        model = {"id": MODEL, "name": MODEL, "provider": "vllm", "route": routes}
        (config / "models.yaml").write_text(yaml.safe_dump({"models": [model]}), "utf-8")
        (config / "routing.yaml").write_text(yaml.safe_dump(routing), "utf-8")
        self.replicas = [Replica(f"replica-{n}", folder, config, redis_url) for n in (1, 2, 3)]
        self.nginx = Nginx(folder / "nginx", self.replicas)
        self.redis: redis.Redis = redis.Redis.from_url(redis_url, decode_responses=True)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.redis.close)
            for process in (*self.servers, *self.replicas):
                stack.callback(process.kill)
                process.start()
            for replica in self.replicas:
                wait_until(replica.is_settled, f"{replica.name} serving")
                assert replica.is_running, f"{replica.name} ended: {replica.text()[-2000:]}"
            for server in self.servers:
                wait_until(server.is_up, f"{server.name} up", 60)
            self.nginx.start()
            stack.callback(self.nginx.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def reset(self) -> None:
        """For the next test: both servers up and at rest, nothing claimed, nothing remembered."""
        for server in self.at_work():
            server.kill()
        for server in self.servers:
            if not server.is_running:
                server.start()
        for server in self.servers:
            wait_until(server.is_up, f"{server.name} up", 60)
        wait_until(self.is_idle, "no claims")
        if left := self.redis.keys("gw:{m:*"):
            self.redis.delete(*left)

    def sdk(self, **options: Any) -> AsyncOpenAI:
        """OpenAI's client at nginx, or at another `base_url`; it repeats nothing by itself."""
        usual = {
            "base_url": f"{self.nginx.url}/v1",
            "api_key": "unused",
            "max_retries": 0,
            "timeout": 60,
        }
        return AsyncOpenAI(**{**usual, **options})

    def at_work(self) -> Sequence[LlamaServer]:
        """The servers that have a busy slot."""
        return [server for server in self.servers if server.busy()]

    def is_idle(self) -> bool:
        """Nothing is claimed."""
        return not self.redis.keys("gw:{m:*}:claim*")
