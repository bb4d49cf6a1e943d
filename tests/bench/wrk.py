"""Closed-loop load by wrk: each connection asks again as soon as it has its answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import payloads
from tests.bench.machine import tool
from tests.bench.processes import NotUp, Process
from tests.bench.running import Running

SCRIPT = Path(__file__).with_name("wrk.lua")
TIMEOUT_S = 60


@contextmanager
def load(
    running: Running,
    folder: Path,
    cores: Collection[int],
    *,
    connections: int,
    seconds: float,
) -> Iterator[None]:
    """Ask a gateway for so long. What runs inside MUST take less time.

    Raises `NotUp` at the end when there was no answer, or one that was not good.
    """
    body = folder / "body.json"
    body.write_bytes(payloads.request(stream=False))
    command = [tool("wrk"), "--threads", "1", "--connections", str(connections)]
    command += ["--duration", f"{-int(-seconds // 1)}s", "--timeout", f"{TIMEOUT_S}s"]
    command += ["--script", str(SCRIPT), running.url + payloads.PATH, "--", str(body)]
    command += [f"{name}: {value}" for name, value in running.headers.items()]
    with Process(command, cores, folder / "wrk.log") as wrk:
        yield
        wrk.wait(seconds + TIMEOUT_S)
    counts = re.search(r"counts (\d+) (\d+)", wrk.said())
    if counts is None or counts[1] == "0" or counts[2] != "0":
        raise NotUp(f"under load: {wrk.said()}; its log ends: {running.process.said()}")
