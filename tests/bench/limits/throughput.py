"""Requests per second with limits and without, and of the gateway as of another commit, in turn."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench import comparison, machine
from tests.bench.concord import start_concord
from tests.bench.measures import Extent
from tests.bench.running import Gateway, Running, Setup
from tests.bench.upstreams import Kind
from tests.bench.versions.variants import BEFORE, PATIENT, tree_of

MANY = 1_000_000_000
KINDS: Mapping[str, Mapping[str, int]] = {
    "no limits": {},
    "rpm, tpm": {"rpm": MANY, "tpm": MANY},
    "all five": dict.fromkeys(("rpm", "tpm", "itpm", "otpm", "max_parallel_requests"), MANY),
}
COLUMNS = {"rps": "requests/s", "cpu_us": "CPU, µs", "redis_us": "Redis's CPU, µs"}


def measure(
    commit: str, rounds: int, seconds: float, cores: Collection[int], others: Collection[int]
) -> str:
    """Returns medians in markdown; behind each, its ratio to that of the commit."""
    found: dict[str, dict[str, list[float]]] = {}
    with comparison.prepare(Extent(0.3, seconds, 0), cores, others) as prepared:
        trees = {BEFORE: tree_of(commit, prepared.bench.folder / BEFORE)}
        gateways = [
            Gateway(name, lambda: "", partial(_start, trees.get(name, machine.ROOT), limits), "")
            for name, limits in {BEFORE: {}, **KINDS}.items()
        ]
        for number in range(rounds):
            with ExitStack() as stack:
                running = [
                    (one, stack.enter_context(prepared.start(one, Kind.WHOLE))) for one in gateways
                ]
                for turn in range(4):
                    for gateway, one in running[:: -1 if turn % 2 else 1]:
                        for name, value in prepared.bench.requests(one).items():
                            found.setdefault(gateway.name, {}).setdefault(name, []).append(value)
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    lines = [f"| | {' | '.join(COLUMNS.values())} |", f"|---|{'---:|' * len(COLUMNS)}"]
    for variant, measures in found.items():
        cells = [
            f"{median(measures[name]):,.0f} · {median(measures[name]) / median(first):.2f}"
            for name in COLUMNS
            if (first := found[BEFORE][name])
        ]
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _start(tree: Path, limits: Mapping[str, Any], setup: Setup) -> AbstractContextManager[Running]:
    return start_concord(setup, tree=tree, fields=limits, state=PATIENT)
