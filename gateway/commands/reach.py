"""Find the cluster that a command asks: over HTTP where `concord up` runs, else on its Redis.

A configuration folder and a Redis URL say which cluster is meant; without them it is that of
`concord up`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from gateway.admin.circuits import CircuitReset
from gateway.admin.doctor import Diagnosis
from gateway.admin.explanation import Explanation
from gateway.admin.status import Status
from gateway.commands.conceal import conceal_password
from gateway.commands.running import find, running_file
from gateway.config.load import load
from gateway.config.result import Config

EMBEDDED = "embedded://"


class CannotTell(Exception):
    """Why a command has no answer; a sentence for the terminal."""

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code
        """What the command exits with."""


class Cluster(Protocol):
    """What can be asked. Every method raises `CannotTell`."""

    def explain(self, asked: Mapping[str, str]) -> Explanation:
        """Where a request would go; `asked` by the names of `admin.explain.Question`."""
        ...

    def status(self) -> Status:
        """Everything at once."""
        ...

    def reset_circuit(self, model: str, endpoint: str) -> CircuitReset:
        """Forget an endpoint's failures."""
        ...

    def examine_redis(self) -> Diagnosis:
        """Look at its Redis and all our keys in it."""
        ...


def reach(folder: Path | None, redis_url: str | None, environ: Mapping[str, str]) -> Cluster:
    """Find the cluster. Raises `CannotTell`, saying what to give."""
    conceal_password(redis_url, environ)
    if folder is None and redis_url is None:
        return _running(environ)
    if folder is None:
        raise CannotTell("--redis needs --config DIR, the folder that the replicas serve")
    if not folder.is_dir():
        raise CannotTell(f"--config {folder} is not a folder", code=2)
    redis_url = redis_url or environ.get("REDIS_URL")
    if not redis_url:
        raise CannotTell("--config needs --redis URL, or REDIS_URL")
    return on_redis(folder, environ, redis_url)


def on_redis(folder: Path, environ: Mapping[str, str], redis_url: str) -> Cluster:
    """The cluster of a configuration folder and a Redis. Raises `CannotTell`."""
    if redis_url == EMBEDDED:
        raise CannotTell("the embedded store cannot be reached from outside its process")
    from gateway.commands.on_redis import OnRedis

    return OnRedis(_load(folder, environ, redis_url), redis_url)


def _running(environ: Mapping[str, str]) -> Cluster:
    running = find(running_file(environ))
    if running is None:
        raise CannotTell(
            "no `concord up` is running here: give --config DIR and --redis URL (or REDIS_URL)"
        )
    from gateway.commands.over_http import OverHttp

    return OverHttp(running, environ)


def _load(folder: Path, environ: Mapping[str, str], redis_url: str) -> Config:
    loaded = load(folder, environ, redis_url=redis_url, serving=True)
    for problem in loaded.problems:
        print(problem, file=sys.stderr)
    if loaded.config is None:
        raise CannotTell("the configuration cannot be served")
    return loaded.config
