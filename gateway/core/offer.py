"""What endpoints would cost and how fast they are, where a strategy weighs these."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Offer(Struct, frozen=True, kw_only=True):
    """One candidate's, for one request."""

    cost_usd: float = 0.0
    """What the request is expected to cost there, or what the use of a quota is worth."""
    latency_ms: float = 0.0
    """From sending to the first output, on average."""
    discount_usd: float = 0.0
    """On the cost, for each token of the prompt that it has cached."""
    source: str = ""
    """How that is known: `profile`, `history_prior`, or `fallback` for not at all."""
    reason: str = ""
    """Why there is no offer; the rest means nothing then."""


class Offers(Struct, frozen=True, kw_only=True):
    """Those of all candidates."""

    alpha: float
    """What may be spent: 0 is what the cheapest costs, 1 what the dearest does."""
    each: Mapping[str, Offer]
    """By location, in the order of the candidates."""
