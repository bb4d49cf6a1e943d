"""`python -m tests.bench.soak`: Concord under load and faults, and under very many streams.

Two runs, each on a cluster of its own: `chaos` and `streams`. Each reports what it has seen; the
command ends with 1 when a rule was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

import uvloop

from tests.bench import machine, soak_chaos, soak_streams

RUNS = ("chaos", "streams")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for: 0 when all rules are kept, 1 when not, 130 when interrupted."""
    args = _parse(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even where a shell ignores it
    try:
        machine.allow_many_sockets()
        print(machine.describe(), flush=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return 0 if runner.run(_run(args)) else 1
    except machine.Unfit as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("soak: interrupted", file=sys.stderr)
        return 130


async def _run(args: argparse.Namespace) -> bool:
    """Run one after the other. Returns whether every rule of all has been kept."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    is_good = True
    if "chaos" in args.runs:
        is_good &= await soak_chaos.run(args.seconds or 60, args.rate, args.replicas or 3)
    if "streams" in args.runs:
        is_good &= await soak_streams.run(args.seconds or 120, args.streams, args.replicas or 1)
    return is_good


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=__doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="chaos or streams (default both)")
    parser.add_argument("--seconds", type=float, help="of load (default 60 chaos, 120 streams)")
    parser.add_argument("--rate", type=float, default=1000, help="chaos: requests/s (1000)")
    parser.add_argument("--streams", type=int, default=1000, help="streams at once (1000)")
    parser.add_argument("--replicas", type=int, help="default 3 for chaos, 1 for streams")
    args = parser.parse_args(arguments)
    if unknown := set(args.runs) - set(RUNS):
        parser.error(f"no such run: {', '.join(sorted(unknown))}")
    args.runs = args.runs or RUNS
    return args


if __name__ == "__main__":
    sys.exit(main())
