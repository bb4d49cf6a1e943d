"""The reference for `expected_ttft`: how endpoints compare, and what a prompt is charged for."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

NEAR = 1.05


class Rated(Struct, frozen=True):
    """An endpoint that may be used, as one caller's prompt finds it."""

    weight: float = 1
    backlog: int = 0
    """Tokens in prefill, of all callers."""
    own: int = 0
    """Of these the caller's own."""
    uncached: int = 0
    """Tokens of the prompt that its hint does not say to be cached."""
    rate: float | None = None
    """Tokens/s, where they are known."""


def charge(endpoint: Rated, tokens: int) -> int:
    """What waits of the caller's own will be cached; a quarter is charged for in any case."""
    return max(endpoint.uncached - endpoint.own, math.ceil(tokens / 4))


def scores(
    endpoints: Mapping[str, Rated], tokens: int, usual_charge: float | None, usual_rate: float
) -> dict[str, float]:
    """In seconds."""
    known = [one.rate for one in endpoints.values() if one.rate]
    rate = sum(known) / len(known) if known else usual_rate
    backlog = sum(one.backlog for one in endpoints.values()) / len(endpoints)
    price = 1 + (backlog / usual_charge if usual_charge else 0)
    return {
        at: (one.backlog + price * charge(one, tokens)) / (one.rate or rate)
        for at, one in endpoints.items()
    }


def chosen(endpoints: Mapping[str, Rated], found: Mapping[str, float], u: float) -> str:
    """Of those that are as good as the best, the one that the number draws by weight."""
    best = [at for at in endpoints if found[at] <= min(found.values()) * NEAR]
    threshold, total = u * sum(endpoints[at].weight for at in best), 0.0
    for at in best:
        total += endpoints[at].weight
        if threshold <= total:
            return at
    return best[-1]
