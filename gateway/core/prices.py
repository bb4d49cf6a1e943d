"""What requests cost, in whole billionths of a US dollar."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from msgspec import Struct

from gateway.core.request import Usage

_UNITS = 10**9
"""Prices are kept in billionths of what costs are told in, so that a token's is a whole number."""
_PER_USD = 10**18
_PER_TOKEN = Decimal(_PER_USD) / 10**6
_PER_PIECE = Decimal(_PER_USD)


class Prices(Struct, frozen=True, kw_only=True):
    """A model's prices, per token and per piece. The default is that nothing costs anything."""

    prompt: int = 0
    cached: int = 0
    """Of prompt tokens that the upstream had cached."""
    completion: int = 0
    request: int = 0
    image: int = 0

    @classmethod
    def of(cls, pricing: Mapping[str, str]) -> Prices:
        """Read US dollars, per million tokens and per piece, as the configuration has them."""
        prompt = _price(pricing.get("prompt"), _PER_TOKEN)
        cached = pricing.get("input_cache_reads")
        return cls(
            prompt=prompt,
            cached=prompt if cached is None else _price(cached, _PER_TOKEN),
            completion=_price(pricing.get("completion"), _PER_TOKEN),
            request=_price(pricing.get("request"), _PER_PIECE),
            image=_price(pricing.get("image"), _PER_PIECE),
        )

    def cost(self, usage: Usage, *, images: int = 0) -> int:
        """What one request costs, rounded up."""
        return -(-self._units(usage, images) // _UNITS)

    def usd(self, usage: Usage, *, images: int = 0) -> float:
        """The same in US dollars, as near as a float comes."""
        return self._units(usage, images) / _PER_USD

    @property
    def cached_discount_usd(self) -> float:
        """How much less a token costs that the upstream had cached; 0 without such a price."""
        saves = 0 < self.cached < self.prompt
        return (self.prompt - self.cached) / _PER_USD if saves else 0.0

    def _units(self, usage: Usage, images: int) -> int:
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        return (
            (usage.prompt_tokens - cached) * self.prompt
            + cached * self.cached
            + usage.completion_tokens * self.completion
            + images * self.image
            + self.request
        )


FREE = Prices()


def _price(text: str | None, unit: Decimal) -> int:
    return int((Decimal(text or 0) * unit).to_integral_value(ROUND_CEILING))
