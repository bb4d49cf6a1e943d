"""Prices, which a file may give as strings or as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

import msgspec

from gateway.config.models_schema import Price, Pricing
from gateway.config.problems import Problems

_MOST = Decimal("1e9")
"""What any price may be: costs are reckoned in floats, too."""


def judge_prices(pricing: Pricing, path: str, problems: Problems) -> None:
    """Note every price that is not a number of at least 0."""
    for key, price in msgspec.structs.asdict(pricing).items():
        if price is not None and _decimal(price) is None:
            problems.error(
                f"{path}.{key}", "must be a number of US dollars, from 0 to 1e9", "such as '0.25'"
            )


def as_text(pricing: Pricing) -> Mapping[str, str]:
    """Return the prices as plain decimal strings; what is none is left out."""
    prices = {
        key: _decimal(price)
        for key, price in msgspec.structs.asdict(pricing).items()
        if price is not None
    }
    return {key: format(price, "f") for key, price in prices.items() if price is not None}


def _decimal(price: Price) -> Decimal | None:
    try:
        value = Decimal(str(price))
    except InvalidOperation:
        return None
    return value if value.is_finite() and 0 <= value <= _MOST else None
