"""Instructions per request, counted by valgrind: the same to a fraction of a percent, whatever else
the machine does. What the kernel does is not in them.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from pathlib import Path

import uvloop

from tests.bench import machine
from tests.bench.client import Client
from tests.bench.comparison import Comparison
from tests.bench.processes import NotUp
from tests.bench.running import Running
from tests.bench.upstreams import Kind
from tests.bench.versions.variants import Variant

WARM, COUNTED = 300, 1000
"""Requests."""
AT_ONCE = 2
"""Few enough that under valgrind, too, none takes so long that its client is watched."""
IDLE_S = 6.0
"""How long is counted what is done without requests, such as heartbeats, to subtract it."""
SETTLED_S = 6.5
"""After the last answer, until its claim is settled and its spans are exported."""


def count(comparison: Comparison, variant: Variant) -> float:
    """Thousands of instructions per request."""
    tally = comparison.bench.folder / "instructions"
    under = ["env", "PYTHONHASHSEED=0", machine.tool("valgrind"), "--tool=callgrind"]
    under += ["--instr-atstart=no", f"--callgrind-out-file={tally}"]
    with comparison.start(variant.gateway(under), Kind.WHOLE) as running:
        uvloop.run(_load(running, WARM))
        _control(running, "--instr=on")
        _control(running, "--zero")
        loaded_s = uvloop.run(_load(running, COUNTED))
        _control(running, "--dump")
        loaded = _counted(tally)
        time.sleep(IDLE_S)
        _control(running, "--dump")
        idle = _counted(tally)
        return (loaded - idle * loaded_s / IDLE_S) / COUNTED / 1000


async def _load(running: Running, requests: int) -> float:
    """Returns how long it took, in seconds."""
    began_s = time.monotonic()
    client = Client(running.url, running.headers, stream=False)
    try:
        await client.ask(requests, at_once=AT_ONCE)
    finally:
        client.close()
    await asyncio.sleep(SETTLED_S)
    return time.monotonic() - began_s


def _control(running: Running, what: str) -> None:
    command = [machine.tool("callgrind_control"), what, str(running.process.pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "OK." not in done.stdout:
        raise NotUp(f"callgrind_control {what}: {done.stdout}{done.stderr}")


def _counted(tally: Path) -> int:
    """What the dumps made so far hold, which is one."""
    dumps = sorted(tally.parent.glob(f"{tally.name}.*"))
    found = [re.search(r"^(?:summary|totals): (\d+)", d.read_text(), re.M) for d in dumps]
    for dump in dumps:
        dump.unlink()
    counts = [int(match[1]) for match in found if match]
    if not counts:
        raise NotUp("valgrind wrote no counts")
    return counts[-1]
