"""How urgent a prompt is by what of it is not cached."""

from __future__ import annotations

import pytest

from gateway.config.schema import Prefill, Priorities
from gateway.routing.priority import priority


@pytest.mark.parametrize(
    ("uncached_tokens", "expected"),
    [(0, 20), (49_999, 20), (50_000, 15), (199_999, 15), (200_000, 0), (10**9, 0)],
)
def test_longer_prompts_are_less_urgent(uncached_tokens: int, expected: int) -> None:
    assert priority(uncached_tokens, Prefill()) == expected


def test_sizes_and_numbers_are_the_configs() -> None:
    numbers = Priorities(interactive=-1, large=0, elephant=7)
    prefill = Prefill(intervene_tokens=10, elephant_tokens=5, priorities=numbers)
    assert [priority(tokens, prefill) for tokens in (4, 5, 10)] == [-1, 7, 7]
