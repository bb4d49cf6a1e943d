"""Prices: exact, in whole billionths of a dollar, rounded up."""

from __future__ import annotations

import pytest

from gateway.core.prices import Prices
from gateway.core.request import Usage


def usage(prompt: int = 0, completion: int = 0, cached: int = 0) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)


PRICES = Prices.of(
    {
        "prompt": "0.25",
        "completion": "1.25",
        "input_cache_reads": "0.025",
        "request": "0.001",
        "image": "0.002",
    }
)


def test_tokens_are_priced_by_the_million_and_pieces_by_the_piece() -> None:
    assert PRICES.cost(usage(1_000_000)) == 250_000_000 + 1_000_000
    assert PRICES.cost(usage(0, 1_000_000)) == 1_250_000_000 + 1_000_000
    assert PRICES.cost(usage(), images=3) == 6_000_000 + 1_000_000


def test_cached_tokens_have_their_own_price() -> None:
    assert PRICES.cost(usage(1000, 0, 800)) == 200 * 250 + 800 * 25 + 1_000_000


def test_cached_tokens_cost_as_others_where_no_price_is_given() -> None:
    assert Prices.of({"prompt": "2"}).cost(usage(1000, 0, 800)) == 2_000_000


def test_no_more_tokens_are_cached_than_there_are() -> None:
    assert Prices.of({"prompt": "2", "input_cache_reads": "1"}).cost(usage(10, 0, 99)) == 10_000


@pytest.mark.parametrize(
    ("price", "tokens", "cost"),
    [("0.0001", 1, 1), ("0.0001", 10, 1), ("0.0001", 11, 2), ("0.15", 7, 1050), ("1e-4", 20, 2)],
)
def test_fractions_of_a_billionth_are_rounded_up_once_for_all(
    price: str, tokens: int, cost: int
) -> None:
    assert Prices.of({"prompt": price}).cost(usage(tokens)) == cost


def test_without_prices_nothing_costs_anything() -> None:
    assert Prices.of({}).cost(usage(10**9, 10**9), images=9) == 0
    assert Prices.of({}) == Prices()
