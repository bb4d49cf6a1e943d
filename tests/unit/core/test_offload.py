"""A request goes to the offload route once, for one reason; what that cut short goes on once."""

from __future__ import annotations

import pytest

from gateway.core.offload import Offload, OffloadReason, OffloadWalk

QUEUE, ENGINE, LAST = OffloadReason


def test_a_prompt_of_the_most_tokens_is_taken_and_one_more_is_not() -> None:
    policy = Offload(location="o", wait_s=1.0, max_input_tokens=99)
    assert (policy.takes(99), policy.takes(100)) == (True, False)
    assert Offload(location="o", wait_s=1.0).takes(10**9)


def test_plain_failures_ask_for_nothing_and_the_route_is_the_last_resort() -> None:
    walk = OffloadWalk()
    walk.failed("a", None, was_cut=False)
    walk.failed("b", None, was_cut=False)
    assert walk.due is None
    assert walk.taken() is LAST
    assert (walk.is_pending, walk.go_back()) == (False, None)


@pytest.mark.parametrize("wait", [QUEUE, ENGINE])
def test_a_wait_that_was_cut_short_asks_for_it_and_goes_on_once(wait: OffloadReason) -> None:
    walk = OffloadWalk()
    walk.failed("a", wait, was_cut=True)
    assert walk.due is wait
    assert walk.taken() is wait
    walk.failed("o", None, was_cut=False)
    assert (walk.due, walk.reason) == (None, wait)
    assert [walk.go_back(), walk.go_back()] == ["a", None]


def test_a_wait_that_was_over_anyway_asks_for_it_and_does_not_go_back() -> None:
    walk = OffloadWalk()
    walk.failed("a", QUEUE, was_cut=False)
    assert walk.taken() is QUEUE
    assert walk.go_back() is None


def test_nothing_asks_for_it_again_once_it_was_taken_or_refused() -> None:
    for end in (OffloadWalk.taken, OffloadWalk.refused):
        walk = OffloadWalk()
        walk.failed("a", QUEUE, was_cut=True)
        end(walk)
        walk.failed("b", QUEUE, was_cut=False)
        assert (walk.due, walk.is_pending) == (None, False)
        assert walk.go_back() == "a"
