"""`python -m tests.bench`: Concord and its peers on this machine, in one table."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence

from tests.bench import comparison, gateways, machine, measures, scripts, table

NAMES = {gateway.name.lower(): gateway for gateway in gateways.ALL}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for: 0 when done, 1 when the machine is not fit, 130 when interrupted."""
    args = _parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # even where a shell has had them ignored
        signal.signal(number, signal.default_int_handler)
    try:
        run(args)
    except machine.Unfit as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    return 0


def run(args: argparse.Namespace) -> None:
    """Measure and print."""
    machine.allow_many_sockets()
    cores, others = machine.divide()
    print(f"{machine.describe()}\n", flush=True)
    os.sched_setaffinity(0, others)
    if args.scripts:
        print(scripts.measure(scripts.QUICK if args.quick else scripts.FULL, cores))
        return
    extent = measures.QUICK if args.quick else measures.FULL
    stamp = time.strftime("%Y%m%d-%H%M%S")
    with comparison.prepare(extent, cores, others) as prepared:
        if args.profile:
            file = machine.cache() / f"profile-{stamp}.txt"
            prepared.profile(file)
            print(f"collapsed stacks: {file}")
            return
        repeats = args.repeats or (1 if args.quick else 3)
        columns = prepared.rounds([NAMES[name] for name in args.only], repeats)
    print(table.render(columns, extent), flush=True)
    file = machine.cache() / f"results-{stamp}.json"
    file.write_text(json.dumps({c.name: {"version": c.version} | c.rounds for c in columns}))
    print(f"- every round: {file}\n", flush=True)
    print(scripts.measure(scripts.QUICK if args.quick else scripts.FULL, cores))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run; its numbers say little")
    parser.add_argument("--repeats", type=int, metavar="N", help="rounds (default 3, quick 1)")
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, default=list(NAMES), help="gateways to measure"
    )
    parser.add_argument("--scripts", action="store_true", help="only the scripts' costs in Redis")
    parser.add_argument("--profile", action="store_true", help="only Concord, sampled by py-spy")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
