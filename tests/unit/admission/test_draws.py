"""A request's random numbers come from its id."""

from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.draws import draws


@pytest.mark.parametrize(("request_id", "attempt", "k"), [("req_1", 1, 0), ("req_1", 2, 5)])
def test_a_number_is_the_first_53_bits_of_the_digest_of_id_attempt_and_index(
    request_id: str, attempt: int, k: int
) -> None:
    digest = blake2b(f"{request_id}|{attempt}|{k}".encode(), digest_size=8).hexdigest()
    bits = f"{int(digest, 16):064b}"[:53]
    assert draws(request_id, attempt, k + 1)[k] == int(bits, 2) / 2**53


@given(st.text(max_size=40), st.integers(1, 9), st.integers(0, 8))
def test_numbers_are_from_zero_to_below_one_and_the_same_on_repeat(
    request_id: str, attempt: int, count: int
) -> None:
    drawn = draws(request_id, attempt, count)
    assert len(drawn) == count
    assert all(0 <= number < 1 for number in drawn)
    assert draws(request_id, attempt, count) == drawn
    assert draws(request_id, attempt, count + 1)[:count] == drawn


def test_attempts_and_ids_draw_apart() -> None:
    seen = {draws(f"r{n}", attempt, 1)[0] for n in range(500) for attempt in (1, 2)}
    assert len(seen) == 1000
    assert 0.45 < sum(seen) / len(seen) < 0.55
