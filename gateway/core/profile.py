"""What the coordinator has learned of a model: how fast its endpoints are, what its answers come
to, and what a request costs.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from gateway.core.supply import QuotaState

_MOST_USED = 0.9999


class Speed(Struct, frozen=True, kw_only=True):
    """How fast an endpoint is: milliseconds from sending to the first output."""

    mean_ms: float
    """Of the window, each failure counted as a minute; or the prior of an endpoint that the window
    has nothing of."""
    source: Literal["profile", "history_prior"]
    count: int = 0
    """Of first outputs in the window."""
    errors: int = 0
    """And of failures."""
    cdf_ms: tuple[float, ...] = ()
    """Evenly spaced quantiles of the first outputs, from the least to the greatest."""

    def share_within(self, ms: float) -> float:
        """Of all attempts, those whose first output had come by then; that of a failure never does.

        No more than is known from the quantiles for sure.
        """
        reached = bisect_right(self.cdf_ms, ms) - 1
        if reached < 0:
            return 0.0
        parts = max(len(self.cdf_ms) - 1, 1)
        return ((self.count - 1) * reached // parts + 1) / (self.count + self.errors)


class Probed(Struct, frozen=True, kw_only=True):
    """How the last sample of an endpoint has ended."""

    at_ms: int
    """When, by the clock of Redis."""
    is_ok: bool
    ttft_ms: int


class Envelope(Struct, frozen=True, kw_only=True):
    """Between what requests cost on demand, in US dollars: 0 < lower < upper."""

    lower: float
    upper: float
    count: int
    """Of the costs that this comes from."""

    def worth(self, used: float) -> float:
        """What one more use of a quota is worth of which this fraction is used."""
        return self.lower * math.pow(self.upper / self.lower, min(max(used, 0.0), _MOST_USED))


class Profile(Struct, frozen=True, kw_only=True):
    """What is known of one model. The default is nothing."""

    speeds: Mapping[str, Speed] = field(default_factory=dict)
    """By location."""
    outputs: Mapping[int, float] = field(default_factory=dict)
    """Tokens of answers to prompts of a size (`size_of`), where there have been enough of them."""
    output: float | None = None
    """Tokens of answers to all others, as far as that is known."""
    envelope: Envelope | None = None
    quotas: Mapping[str, QuotaState] = field(default_factory=dict)
    """By pool, those that somebody has reported."""
    probes: Mapping[str, Probed] = field(default_factory=dict)
    """By location."""

    def output_tokens(self, prompt_tokens: int, default: float) -> float:
        """How long an answer to a prompt is to be expected, in tokens."""
        usual = default if self.output is None else self.output
        return self.outputs.get(size_of(prompt_tokens), usual)


NO_PROFILE = Profile()


def size_of(prompt_tokens: int) -> int:
    """The class of a prompt's size: each begins at twice the tokens of the one before."""
    return max(prompt_tokens, 1).bit_length() - 1
