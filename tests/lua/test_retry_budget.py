"""The budget of failover: a share of first attempts, and a floor, for all replicas together.

Half minutes are counted, and the one before the current one counts, too.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.lua.limited import limited
from tests.lua.rig import SECOND, START_MS, Rig

HALF_MS = 30 * SECOND
BOTH = "a 1 b 1"


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """A fifth of first attempts, three in any case; at the beginning of a half minute."""
    rig.policy = structs.replace(rig.policy, retry_percent=20, retry_floor=3)
    rig.now_ms = START_MS + HALF_MS - START_MS % HALF_MS
    return rig


def first(rig: Rig, count: int = 1, by: str = "r") -> None:
    """So many first attempts, which end at once."""
    for _ in range(count):
        claim = f"{by}.{fresh(rig)}"
        assert rig.admit(claim, BOTH).is_admitted
        rig.settle(claim, "neutral")


def others(rig: Rig, count: int = 1, by: str = "r") -> list[bool]:
    """Whether each of so many more attempts, after one at `a`, may be made."""
    claims = [f"{by}.{fresh(rig)}" for _ in range(count)]
    return [rig.admit(claim, BOTH, tried="a").is_admitted for claim in claims]


def fresh(rig: Rig) -> int:
    rig.attempts = getattr(rig, "attempts", 0) + 1  # type: ignore[attr-defined]
    return rig.attempts  # type: ignore[attr-defined,no-any-return]


def test_without_any_first_attempt_the_floor_may_be_used(rig: Rig) -> None:
    assert others(rig, 5) == [True] * 3 + [False] * 2


@pytest.mark.parametrize(("firsts", "allowed"), [(19, 3), (20, 4), (24, 4), (25, 5), (50, 10)])
def test_a_fifth_of_first_attempts_may_be_failover(rig: Rig, firsts: int, allowed: int) -> None:
    first(rig, firsts)
    assert others(rig, allowed + 1) == [True] * allowed + [False]


def test_attempts_after_a_request_that_was_itself_to_blame_neither_need_nor_use_it(
    rig: Rig,
) -> None:
    for number in range(9):
        assert rig.admit(f"bad.{number}", BOTH, tried="~ a").location == "b"

    assert others(rig, 4) == [True] * 3 + [False]
    assert rig.admit("bad.9", BOTH, tried="~ a").is_admitted
    assert rig.admit("bad.10", BOTH, tried="~ a b").passed_over() == {
        "a": "already_attempted",
        "b": "already_attempted",
    }


def test_an_attempt_that_could_not_be_made_is_counted_once(rig: Rig) -> None:
    # Given attempts that are granted, and granted again elsewhere
    first(rig, 20)
    for number in range(4):
        assert rig.admit(f"full.{number}", BOTH, tried="a").is_admitted
        assert rig.admit(f"then.{number}", BOTH, tried="~ a").is_admitted
    for number in range(20):
        assert rig.admit(f"first.{number}", BOTH, tried="~").is_admitted
    # Then they are as many as they were
    assert rig.admit("no.1", BOTH, tried="a").passed_over()["b"] == "retry_budget"


def test_once_spent_says_so_of_what_has_not_been_tried_and_writes_nothing(rig: Rig) -> None:
    others(rig, 3)
    before = rig.state()
    refused = rig.admit("r.x", "a 1 b 1 c 1", tried="a")
    assert refused.status == "refused"
    assert refused.passed_over() == {
        "a": "already_attempted",
        "b": "retry_budget",
        "c": "retry_budget",
    }
    assert refused.retry_after_ms == 0, "its client is told of the failure, not of this"
    assert rig.state() == before


def test_first_attempts_are_never_refused_by_it(rig: Rig) -> None:
    others(rig, 4)
    first(rig, 5)


def test_more_first_attempts_allow_more_at_once(rig: Rig) -> None:
    assert others(rig, 4)[-1] is False
    first(rig, 20)
    assert others(rig, 2) == [True, False]


def test_attempts_of_all_replicas_are_counted_together(rig: Rig) -> None:
    first(rig, 10, by="r1")
    first(rig, 10, by="r2")
    granted = [others(rig, by=by)[0] for by in ("r1", "r2", "r3", "r1", "r2")]
    assert granted == [True] * 4 + [False]


def test_those_of_the_half_minute_before_count_and_those_before_that_do_not(rig: Rig) -> None:
    first(rig, 50)
    others(rig, 4)
    rig.later(HALF_MS)
    assert others(rig, 7) == [True] * 6 + [False]
    rig.later(HALF_MS)
    assert others(rig) == [False], "six are of the half minute before, and the floor is three"
    rig.later(HALF_MS)
    assert others(rig, 4) == [True] * 3 + [False]


def test_after_a_while_without_any_attempt_all_is_forgotten(rig: Rig) -> None:
    others(rig, 3)
    rig.later(2 * HALF_MS - 1)
    assert others(rig) == [False]
    rig.later(1)
    assert others(rig) == [True]


def test_a_repeated_claim_is_counted_once(rig: Rig) -> None:
    for claim in ("r.1", "r.1", "r.1", "r.2", "r.2", "r.3"):
        assert rig.admit(claim, BOTH, tried="a").is_admitted
    assert rig.admit("r.4", BOTH, tried="a").status == "refused"
    assert rig.admit("r.3", BOTH, tried="a").is_admitted


def test_an_attempt_that_is_refused_for_another_reason_is_not_counted(rig: Rig) -> None:
    full = f"a 1 {limited('b', max_parallel_requests=1)}"
    rig.admit("r.0", limited("b", max_parallel_requests=1))
    for number in range(5):
        refused = rig.admit(f"x.{number}", full, tried="a")
        assert refused.passed_over()["b"] == "parallel_limit"
    assert others(rig, 4) == [True] * 3 + [False]


def test_of_one_endpoint_there_is_no_failover_to_count(rig: Rig) -> None:
    assert rig.admit("r.1", "a 1").is_admitted
    assert rig.field("retries") is None


def test_where_there_is_no_budget_nothing_is_counted_nor_refused(rig: Rig) -> None:
    rig.policy = structs.replace(rig.policy, retry_percent=-1)
    first(rig)
    assert others(rig, 9) == [True] * 9
    assert rig.field("retries") is None


@pytest.mark.parametrize(
    ("percent", "floor", "allowed"), [(0, 0, 0), (0, 2, 2), (100, 0, 8), (150, 0, 12)]
)
def test_percent_and_floor_are_those_of_the_configuration(
    rig: Rig, percent: int, floor: int, allowed: int
) -> None:
    rig.policy = structs.replace(rig.policy, retry_percent=percent, retry_floor=floor)
    first(rig, 8)
    assert others(rig, allowed + 1) == [True] * allowed + [False]


@pytest.mark.parametrize("nonsense", ["", "x", "1 2 3 4", "-1 0 9 0 0", "nan 0 9 0 0"])
def test_nonsense_is_no_count(rig: Rig, nonsense: str) -> None:
    rig.put({"retries": nonsense})
    assert others(rig, 4) == [True] * 3 + [False]


def test_a_clock_set_back_a_little_stands_still(rig: Rig) -> None:
    others(rig, 3)
    rig.later(-2 * SECOND)
    assert others(rig) == [False]


def test_a_clock_set_back_far_begins_anew(rig: Rig) -> None:
    others(rig, 3)
    rig.later(-2 * HALF_MS)
    assert others(rig) == [True]


def test_it_is_told_before(rig: Rig) -> None:
    others(rig, 3)
    told = rig.explain(BOTH, tried="a")
    assert (told.status, told.reasons) == ("refused", "a=already_attempted b=retry_budget")
