"""The processes of one `concord up`: a store, perhaps engines and a coordinator, and replicas."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
from msgspec import Struct

from gateway.commands.processes import POLL_S, Children, Interrupts
from gateway.state.server import PrivateRedis

BACKLOG = 2048
READY_S = 90.0
"""A process that cannot start ends, and is noticed at once; a busy machine only takes long."""
MARGIN_S = 5.0
"""What a replica gets beyond its drain timeout, and what an engine gets."""


class CannotStart(Exception):
    """Why the cluster does not come up, or does not stay up; a sentence for the terminal."""


class Interrupted(Exception):
    """A signal asked for the end."""


class Place(Struct, frozen=True):
    """The address of the cluster, from which all others follow."""

    host: str
    port: int

    def url(self, offset: int = 0) -> str:
        """Spell how this machine reaches the port `offset` above."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port + offset}"

    def listen(self) -> socket.socket:
        """Bind the socket that all replicas are to accept on."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=BACKLOG)
        except OSError as problem:
            reason = os.strerror(problem.errno) if problem.errno else problem
            raise CannotStart(f"cannot listen on {self.host}:{self.port}: {reason}") from problem


class Cluster:
    """Starts the processes and ends them in order: replicas, coordinator, engines.

    The store is its owner's.
    """

    def __init__(self, interrupts: Interrupts, store: PrivateRedis | None) -> None:
        self._interrupts = interrupts
        self._store, self._engines, self._replicas = Children(), Children(), Children()
        self._coordinator = Children()
        if store is not None and store.process is not None:
            self._store.adopt("redis", store.process)
        self._unready: dict[str, str] = {}

    def start_engine(
        self, name: str, port: int, command: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        """Start a simulated engine."""
        self._engines.start(name, command, environ)
        self._unready[name] = f"http://127.0.0.1:{port}/health"

    def start_replicas(
        self,
        place: Place,
        count: int,
        config: Path,
        listener: socket.socket,
        environ: Mapping[str, str],
    ) -> None:
        """Start replicas that share `listener`, and close it here lest it outlive them."""
        shared = listener.fileno()
        for number in range(1, count + 1):
            name, port = f"replica-{number}", str(place.port + number)
            command = ["serve", "--config", str(config), "--host", place.host, "--port", port]
            command += ["--fd", str(shared), "--drain-delay", "0"]
            self._replicas.start(name, command, environ, pass_fds=[shared])
            self._unready[name] = f"{place.url(number)}/readyz"
        listener.close()

    def start_coordinator(
        self, place: Place, offset: int, config: Path, environ: Mapping[str, str]
    ) -> None:
        """Start the coordinator, which answers on the port `offset` above."""
        port = str(place.port + offset)
        command = ["coordinator", "--config", str(config), "--host", place.host, "--port", port]
        self._coordinator.start("coordinator", command, environ)
        self._unready["coordinator"] = f"{place.url(offset)}/readyz"

    def wait_until_ready(self) -> None:
        """Wait until every process started so far says so."""
        deadline = time.monotonic() + READY_S
        with httpx.Client(timeout=2.0, trust_env=False) as client:
            while self._unready:
                self.check()
                answers = {name: _readiness(client, url) for name, url in self._unready.items()}
                for name, answer in answers.items():
                    if answer in ("ready", "ok"):
                        del self._unready[name]
                    elif time.monotonic() > deadline:
                        raise CannotStart(f"{name} is not ready after {READY_S:.0f} s: {answer}")
                time.sleep(POLL_S)

    def watch(self) -> None:
        """Run until a signal comes; a child that ends by itself raises `CannotStart`."""
        while True:
            try:
                self.check()
            except Interrupted:
                return
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raise what has happened: `Interrupted`, or `CannotStart` for a child that has ended."""
        if self._interrupts.count:
            raise Interrupted
        for children in (self._replicas, self._coordinator, self._engines, self._store):
            fate = children.ended()
            if fate is not None:
                raise CannotStart(f"{fate}; stopping everything")

    def stop(self, drain_timeout_s: float) -> None:
        """Let the replicas drain, then end the others. Another signal cuts this short."""
        seen = self._interrupts.count
        for children, grace_s in (
            (self._replicas, drain_timeout_s + MARGIN_S),
            (self._coordinator, MARGIN_S),
            (self._engines, MARGIN_S),
        ):
            children.stop(grace_s, lambda: self._interrupts.count > seen)


def _readiness(client: httpx.Client, url: str) -> str:
    try:
        return str(client.get(url).json()["status"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        return "no answer"
