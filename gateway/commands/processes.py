"""Child processes under supervision: started together, stopped in order, none left behind.

Each child is in a process group of its own, so that a Ctrl-C reaches only the supervisor, which
then decides who goes when. On Linux they die with it even when it is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self

import gateway
from gateway.state.orphan import die_with_parent

POLL_S = 0.05
KILLED_S = 5.0
"""How long a killed child may take to vanish."""


def program(package: str = "gateway") -> list[str]:
    """Spell how to run one of our packages, not one of its name where the user happens to be."""
    at_home = Path.cwd() == Path(gateway.__file__).parent.parent
    return [sys.executable, *([] if at_home else ["-P"]), "-m", package]


class Interrupts:
    """Counts the signals that ask for an end, instead of letting them end the process."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


class Children:
    """Processes that go together: all run, or something is wrong."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Run a command of this program. What it prints goes to our stderr."""
        self._running[name] = subprocess.Popen(
            [*program(), *command],
            env=environ,
            pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            preexec_fn=die_with_parent(),  # noqa: PLW1509  (it only makes two system calls)
            process_group=0,
        )

    def adopt(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Watch a process that was started elsewhere."""
        self._running[name] = process

    def ended(self) -> str | None:
        """Say which child has ended, and how, if one has."""
        for name, process in self._running.items():
            status = process.poll()
            if status is not None:
                return f"{name} {_describe(status)}"
        return None

    def stop(self, grace_s: float, is_hurried: Callable[[], bool]) -> None:
        """Ask all to end and wait; kill those still there when time is up or `is_hurried()`."""
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + grace_s
        while self._remaining() and time.monotonic() < deadline and not is_hurried():
            time.sleep(POLL_S)
        for process in self._remaining():
            process.kill()
        for process in self._running.values():
            process.wait(KILLED_S)
        self._running.clear()

    def _remaining(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self._running.values() if process.poll() is None]


def _describe(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
