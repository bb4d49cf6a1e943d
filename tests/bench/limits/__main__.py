"""`python -m tests.bench.limits`: whether limits of endpoints hold, and what they cost."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from tests.bench import machine, scripts
from tests.bench.limits import costs, overload, throughput

PARTS = ("overload", "costs", "throughput")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print: 0 when all is as it must be, 1 when not, 130 when interrupted."""
    args = _parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # even where a shell has had them ignored
        signal.signal(number, signal.default_int_handler)
    try:
        return run(args)
    except machine.Unfit as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130


def run(args: argparse.Namespace) -> int:
    """Run the parts that are asked for; returns the exit status."""
    machine.allow_many_sockets()
    print(f"{machine.describe()}\n", flush=True)
    faults: list[str] = []
    if "overload" in args.only:
        seen, faults = overload.measure(args.seconds)
        print(f"{seen}\n", flush=True)
    cores, others = machine.divide()
    os.sched_setaffinity(0, others)
    if "costs" in args.only:
        extent = scripts.QUICK if args.quick else scripts.FULL
        print(f"{costs.measure(extent, cores)}\n", flush=True)
    if "throughput" in args.only:
        rounds, seconds = (1, 0.6) if args.quick else (4, 1.5)
        print(throughput.measure(args.before, rounds, seconds, cores, others), flush=True)
    return 1 if faults else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.limits", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="of overload, at least 70 (%(default)s)"
    )
    parser.add_argument("--before", default="HEAD", metavar="COMMIT", help="default %(default)s")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its numbers say little")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
