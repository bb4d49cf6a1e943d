"""What the leader has done since its last tick."""

from __future__ import annotations

from collections import Counter

WORDS = {
    "probed": "{} health probes",
    "failed": "{} of them failed",
    "tried": "{} recovery probes",
    "recovered": "{} endpoints recovered",
    "sampled": "{} samples taken",
    "learned": "{} outcomes learned from",
    "ended": "{} expired claims ended",
    "forgotten": "{} stale fields forgotten",
    "unpinned": "{} stale pins dropped",
}
"""What is counted, and how it is said."""


class Tally:
    """Counts, by the names in `WORDS`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, what: str, count: int = 1) -> None:
        """Count something that has been done."""
        self._counts[what] += count

    def take(self) -> dict[str, int]:
        """All counts, which begin anew."""
        counts = {what: self._counts[what] for what in WORDS}
        self._counts.clear()
        return counts


def sentence(counts: dict[str, int]) -> str:
    """Say what has been done."""
    said = [WORDS[what].format(count) for what, count in counts.items() if count]
    return ", ".join(said) or "nothing to do"
