"""`python -m tests.bench.versions --before COMMIT`: what a request costs now, and at a commit."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.bench import comparison, machine
from tests.bench.client import Failed
from tests.bench.comparison import Comparison
from tests.bench.measures import Extent
from tests.bench.processes import NotUp
from tests.bench.upstreams import Kind
from tests.bench.versions import instructions
from tests.bench.versions.variants import BEFORE, NAMES, Variant, tree_of, variants

COLUMNS = {
    "rps": ("requests/s", ",.0f"),
    "busy": ("of its core", ".0%"),
    "cpu_us": ("CPU, µs", ".1f"),
    "redis_us": ("Redis's CPU, µs", ".1f"),
    "kilo": ("thousand instructions", ",.0f"),
}
WARM_S = 0.3
Found = dict[str, dict[str, list[float]]]
"""By variant and measure: the value of each round."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print: 0 when done, 1 when that cannot be, 130 when interrupted."""
    args = _parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # even where a shell has had them ignored
        signal.signal(number, signal.default_int_handler)
    try:
        run(args)
    except (machine.Unfit, NotUp, Failed) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    return 0


def run(args: argparse.Namespace) -> None:
    """Measure all, print the medians and how they compare with the first one's."""
    machine.allow_many_sockets()
    cores, others = machine.divide()
    print(f"{machine.describe()}\n", flush=True)
    os.sched_setaffinity(0, others)
    with comparison.prepare(Extent(WARM_S, args.seconds, 0), cores, others) as prepared:
        tree = tree_of(args.before, prepared.bench.folder / BEFORE)
        known = variants(tree, args.tree.resolve(), args.sampled)
        chosen = [variant for variant in known if variant.name in args.only]
        found: Found = {variant.name: {} for variant in chosen}
        if args.instructions:
            for variant in chosen:
                _note(found, variant, kilo=instructions.count(prepared, variant))
        else:
            for _ in range(args.rounds):
                _round(prepared, chosen, args.slices, found)
    print(table(found))


def table(found: Found) -> str:
    """Medians in markdown; behind each, its ratio to the first variant's."""
    first = next(iter(found.values()))
    lines = [["", *(COLUMNS[name][0] for name in first)], ["---", *["---:"] * len(first)]]
    for variant, measures in found.items():
        cells = []
        for name, values in measures.items():
            ratio = median(values) / median(first[name])
            cells.append(f"{median(values):{COLUMNS[name][1]}} · {ratio:.3f}")
        lines.append([variant, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _round(prepared: Comparison, chosen: Sequence[Variant], slices: int, found: Found) -> None:
    """Start all, and ask them in turn, in each slice in the opposite order."""
    with ExitStack() as stack:
        running = [
            (variant, stack.enter_context(prepared.start(variant.gateway(), Kind.WHOLE)))
            for variant in chosen
        ]
        for number in range(slices):
            for variant, one in running[:: -1 if number % 2 else 1]:
                _note(found, variant, **prepared.bench.requests(one))


def _note(found: Found, variant: Variant, **values: float) -> None:
    told = {name: value for name, value in values.items() if name in COLUMNS}
    for name, value in told.items():
        found[variant.name].setdefault(name, []).append(value)
    shown = ", ".join(f"{COLUMNS[n][0]} {v:{COLUMNS[n][1]}}" for n, v in told.items())
    print(f"{variant.name}: {shown}", file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.versions", description=__doc__)
    parser.add_argument("--before", required=True, metavar="COMMIT", help="what to compare with")
    parser.add_argument(
        "--tree", type=Path, default=machine.ROOT, metavar="DIR", help="what to compare (this one)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="all are started anew (%(default)s)")
    parser.add_argument("--slices", type=int, default=8, help="of a round (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.2, help="of a slice (%(default)s)")
    parser.add_argument("--sampled", type=float, default=0.01, help="share (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="default: all")
    parser.add_argument("--instructions", action="store_true", help="count them, by valgrind")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
