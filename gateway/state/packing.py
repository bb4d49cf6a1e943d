"""Candidates, limits and offers as the scripts take them.

See `lua/lib/ask.lua`, `lua/lib/limit.lua` and `lua/score/routewise.lua`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gateway.core.limits import EndpointLimits, Limit
from gateway.core.offer import Offer, Offers
from gateway.state.keys import encode_id
from gateway.state.standing import NAMES


@lru_cache(maxsize=4096)
def packed_candidates(
    candidates: tuple[tuple[str, float], ...],
    limited: tuple[tuple[str, EndpointLimits], ...],
    reserve: str = "",
) -> str:
    """The candidate table as `admit` takes it. The same one comes with almost every call."""
    limits = {at: _packed(limits) for at, limits in limited}
    return " ".join(
        f"{encode_id(at)} {'-' if at == reserve else f'{weight:.17g}'}{limits.get(at, '')}"
        for at, weight in candidates
    )


def packed_limits(limited: Sequence[tuple[str, EndpointLimits]]) -> str:
    """The limits of endpoints alone, `<location>|<limits> ...`."""
    return " ".join(f"{encode_id(at)}{_packed(limits)}" for at, limits in limited)


def packed_offers(offers: Offers) -> str:
    """What candidates offer, in their order."""
    return " ".join([f"{offers.alpha:.17g}", *map(_offer, offers.each.values())])


def _offer(offer: Offer) -> str:
    offered = (offer.cost_usd, offer.latency_ms, offer.discount_usd)
    return offer.reason or ",".join(f"{number:.17g}" for number in offered)


def _packed(limits: EndpointLimits) -> str:
    found = ((kind, getattr(limits, name, None)) for kind, name in NAMES.items())
    return "|" + ",".join(f"{kind}={spell_limit(limit)}" for kind, limit in found if limit)


def spell_limit(limit: Limit | None) -> str:
    """A limit as the scripts read it (`lua/lib/scopes.lua`)."""
    if limit is None:
        return "-"
    return f"{limit.most}{'f' * limit.is_fixed}{'s' * limit.is_shadow}"
