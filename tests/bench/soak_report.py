"""What a run of the soak has seen, and which rules it has found broken."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

EXAMPLES = 5


class Report:
    """Facts and rules, printed as they come."""

    def __init__(self, title: str) -> None:
        self.broken: list[str] = []
        """Names of the rules that are."""
        print(f"\n{title}", flush=True)

    def fact(self, text: str) -> None:
        """Say what was seen."""
        print(f"  {text}", flush=True)

    def rule(self, name: str, evidence: Sequence[object]) -> None:
        """Judge a rule: it is broken by any evidence against it."""
        print(f"  {'BROKEN' if evidence else 'ok    '} {name}", flush=True)
        if evidence:
            self.broken.append(name)
        for each in evidence[:EXAMPLES]:
            print(f"         {each}", flush=True)
        if len(evidence) > EXAMPLES:
            print(f"         and {len(evidence) - EXAMPLES} more", flush=True)


def spread(values: Sequence[float]) -> str:
    """Median, 99th percentile and maximum of times in seconds, as milliseconds."""
    if len(values) < 2:
        return "too few to say"
    ranks = statistics.quantiles(values, n=100)
    p50, p99, most = (1000 * value for value in (ranks[49], ranks[98], max(values)))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {most:.1f} ms"
