"""Processes that are pinned to cores, stopped with us, and watched through /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx
from msgspec import Struct

from gateway.state.orphan import die_with_parent
from tests.bench.machine import HOST, ROOT

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
STOP_S = 5.0
_CPU_CLOCK = 2
"""What makes a process's id the name of its clock (`clock_getcpuclockid`)."""
NO_WAY_OUT = {
    "http_proxy": "",
    "https_proxy": f"http://{HOST}:9",
    "no_proxy": f"{HOST},localhost",
    "HTTP_PROXY": "",
    "HTTPS_PROXY": f"http://{HOST}:9",
    "NO_PROXY": f"{HOST},localhost",
}
"""Environment under which a program that asks the internet something at its start fails at once."""


class NotUp(Exception):
    """A process did not start, or did not answer as it should; the text holds what it said."""


class Process:
    """A program in a session of its own, pinned, its output kept in a file."""

    def __init__(
        self, command: Sequence[str], cores: Collection[int], log: Path, **env: str
    ) -> None:
        self._command = command
        self._cores = cores
        self._env = {**os.environ, **NO_WAY_OUT, **env}
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the leader, which is the session's id as well."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the leader is gone."""
        return self._process is None or self._process.poll() is not None

    def said(self, characters: int = 600) -> str:
        """The end of what it has written."""
        return self.log.read_text("utf-8", "replace")[-characters:].strip()

    def wait(self, timeout_s: float) -> None:
        """Wait for its end. Raises `NotUp` when it takes too long."""
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise NotUp(f"did not end within {timeout_s:.0f} s") from error

    def __enter__(self) -> Self:
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_pinned(self._cores),
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the whole session, by force if it takes too long."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _pinned(cores: Collection[int]) -> Callable[[], None]:
    bound = die_with_parent()

    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        if bound:
            bound()

    return prepare


class Usage(Struct, frozen=True):
    """What a session's processes have used up to now."""

    cpu_s: float
    rss_kb: int


def usage(session: int) -> Usage:
    """Add up all processes of a session, with what its ended children have used."""
    used_s = 0.0
    pages = 0
    for pid, fields in _stats():
        if int(fields[3]) == session:
            with contextlib.suppress(OSError):  # it has just ended
                used_s += cpu_s(pid)
            used_s += sum(map(int, fields[13:15])) / TICKS_PER_S  # of its children
            pages += int(fields[21])
    return Usage(used_s, pages * PAGE_KB)


def cpu_s(pid: int) -> float:
    """CPU time of a single process with all its threads, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Each process, and the fields of its `stat` from the third (its state) on."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                text = (folder / "stat").read_text("utf-8")
                yield int(folder.name), text.rpartition(")")[2].split()


def wait_up(process: Process, fault: Callable[[], str], timeout_s: float) -> None:
    """Ask until nothing is at fault. Raises `NotUp` when it ends, or when time is up."""
    deadline, found = time.monotonic() + timeout_s, ""
    while time.monotonic() < deadline and not process.has_ended:
        try:
            found = fault()
        except httpx.TransportError as error:
            found = type(error).__name__
        if not found:
            return
        time.sleep(0.1)
    how = "has ended" if process.has_ended else f"not good within {timeout_s:.0f} s: {found}"
    raise NotUp(f"{how}; its log ends: {process.said()}")


def fill(template: str, values: Mapping[str, object]) -> str:
    """Put values in place of `@NAME@`."""
    for name, value in values.items():
        template = template.replace(f"@{name}@", str(value))
    return template
