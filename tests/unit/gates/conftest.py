"""One replica at gates, over each kind of store, and more of them over a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL
from tests.redis_servers import RedisServer
from tests.unit.gates.replica import GateReplica


@pytest.fixture(params=["redis", "embedded"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "embedded":
        return EMBEDDED_URL
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url


@pytest.fixture
async def replica(url: str, keys: Keys) -> AsyncIterator[GateReplica]:
    """The only one."""
    async with GateReplica(url, keys) as replica:
        yield replica


@pytest.fixture
async def pair(redis_server: RedisServer, keys: Keys) -> AsyncIterator[tuple[GateReplica, ...]]:
    """Two replicas, `a` and `b`."""
    async with (
        GateReplica(redis_server.url, keys, "a") as a,
        GateReplica(redis_server.url, keys, "b") as b,
    ):
        yield a, b
