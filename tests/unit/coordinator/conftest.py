"""A real Redis with its scripts, and what a coordinator knows."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable

import pytest
import redis

from coordinator.current import Current, Known
from coordinator.lease import Lease
from coordinator.tally import Tally
from gateway.config.result import Config
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.redis import RedisRunner, connect
from gateway.state.scripts import folder, load_all
from gateway.state.store import Store
from tests.redis_servers import RedisServer

SCRIPTS = load_all(folder())
EPOCH = 2_000_000_000


class Rig:
    """The stores of one namespace, and an operator's look at it."""

    def __init__(self, runner: RedisRunner, client: redis.Redis, keys: Keys) -> None:
        self.runner = runner
        self.client = client
        self.keys = keys
        self.store = Store(runner, keys)
        self.coordinator = CoordinatorStore(runner, keys)
        self.tally = Tally()

    async def known(self, config: Config, *, replicas: int = 1, digest: str = "digest") -> Known:
        """What is known of a cluster whose replicas serve by a digest."""
        await self.beat(replicas, digest)
        known = Known(current(config), self.store)
        await known.look()
        return known

    async def beat(self, replicas: int = 1, digest: str = "digest") -> None:
        """Have so many replicas say that they live."""
        for number in range(1, replicas + 1):
            about = f"host=h version=1 config={digest}"
            await self.store.beat_replica(f"r{number}", about=about, ttl_ms=60_000)

    def put(self, model_id: str, **fields: object) -> None:
        """Edit a model's endpoints by hand, `location__what=text`."""
        key = self.keys.model(model_id)["endpoints"]
        named = {name.replace("__", ":"): str(value) for name, value in fields.items()}
        self.client.hset(key, mapping=named)

    def row(self, model_id: str = "m") -> dict[str, str]:
        """What is known of a model's endpoints, but for the fence and the clock."""
        found = self.client.hgetall(self.keys.model(model_id)["endpoints"])
        return {name: text for name, text in found.items() if name not in ("fence", "at_ms")}

    def all_keys(self) -> set[str]:
        """Every key, without the namespace."""
        found = self.client.keys(f"{self.keys.namespace}:*")
        return {key.removeprefix(f"{self.keys.namespace}:") for key in found}


def current(config: Config, *, is_complete: bool = True) -> Current:
    """A configuration to work by."""
    return Current(config=config, policy=Policy.of(config.settings), is_complete=is_complete)


def held(rig: Rig) -> Lease:
    """The lease of `c1`, who leads for good."""
    lease = Lease(rig.coordinator, "c1", about=lambda: "host=h", lease_s=10, call_s=1)
    lease.until_s = math.inf
    return lease


class Over(Lease):
    """The lease of `c1`, whose time is over; it has not been cancelled yet."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig.coordinator, "c1", about=lambda: "host=h", lease_s=10, call_s=1)
        self.asked = 0

    @property
    def is_held(self) -> bool:
        """Count the question."""
        self.asked += 1
        return super().is_held


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds, in a task of the test's own loop."""
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


@pytest.fixture
async def rig(redis_server: RedisServer, keys: Keys) -> AsyncIterator[Rig]:
    runner = connect(redis_server.url, SCRIPTS, socket_timeout_s=5)
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        yield Rig(runner, client, keys)
    await runner.close()
