"""Servers to be ill-treated, an operator at each, and a caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from gateway.state.keys import Keys
from tests.redis_servers import RedisServer, private
from tests.unit.state.caller import Caller


@pytest.fixture(params=["redis_binary", "old_redis_binary"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of today and an old one, each of our own, to be ill-treated."""
    with private(request.getfixturevalue(request.param)) as server:
        yield server


@pytest.fixture
def operator(server: RedisServer) -> Iterator[redis.Redis]:
    """Somebody with a redis-cli."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


@pytest.fixture
async def caller(server: RedisServer, keys: Keys) -> AsyncIterator[Caller]:
    caller = Caller(server.url, keys)
    yield caller
    await caller.runner.close()
