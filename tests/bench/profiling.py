"""Where Concord spends its time under load, as py-spy sees it. py-spy is no dependency."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.machine import Unfit
from tests.bench.processes import Process

RATE = 200
END_S = 30.0


def find() -> str:
    """Path of py-spy: beside this Python, else on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise Unfit("--profile needs py-spy, in this environment or on PATH")
    return found


@contextmanager
def record(pid: int, file: Path, seconds: float, cores: Collection[int]) -> Iterator[None]:
    """Sample a process while the body runs: collapsed stacks, a line per stack with its count."""
    command = [find(), "record", "--pid", str(pid), "--rate", str(RATE), "--nonblocking"]
    command += ["--duration", str(int(seconds)), "--format", "raw", "--output", str(file)]
    with Process(command, cores, file.with_suffix(".log")) as sampler:
        yield
        sampler.wait(seconds + END_S)
    if not file.exists():
        raise Unfit(f"py-spy wrote nothing: {sampler.said()}")
