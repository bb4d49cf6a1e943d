"""What a gateway is started with, and what is known of one that runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct

from tests.bench.processes import Process, wait_up
from tests.bench.upstreams import HEADERS, Kind, fault

START_S = 90.0
KEY = "sk-bench-0123456789abcdef"
"""What callers show where a gateway asks for a key."""
HEADERS_WITH_KEY = HEADERS | {"authorization": f"Bearer {KEY}"}


class Setup(Struct, frozen=True):
    """Where a gateway runs and whom it calls."""

    folder: Path
    """An empty folder of its own."""
    upstreams: tuple[str, str]
    port: int
    cores: Collection[int]
    """The gateway's."""
    other_cores: Collection[int]
    """For what it needs beside itself."""


class Running(Struct, frozen=True):
    """A gateway that runs."""

    url: str
    process: Process
    headers: dict[str, str]
    redis_pid: int | None = None

    def check(self, kind: Kind) -> None:
        """Wait until it answers a chat request as it should. Raises `NotUp`."""
        wait_up(self.process, lambda: fault(self.url, kind, self.headers), START_S)


class Gateway(Struct, frozen=True):
    """A gateway to compare."""

    name: str
    version: Callable[[], str]
    """Makes sure that it is there, too. Raises `Absent`."""
    start: Callable[[Setup], AbstractContextManager[Running]]
    note: str
    """How it is set up."""
