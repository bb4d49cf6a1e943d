"""settle_caller: a reservation ends once, and what it took becomes what it used."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from tests.lua.caller_rig import PART_MS, WINDOW_MS, CallerRig, fixed, scope
from tests.lua.rig import HOUR, LEASE_MS, MINUTE, SECOND

TOKENS = scope(tpm=1000)
MONEY = scope(max_budget=1000, budget_duration_ms=HOUR)
EVERY = scope(rpm=3, tpm=1000, max_parallel_requests=3, max_budget=1000, budget_duration_ms=HOUR)
NAMES = (
    "key:alice rpm",
    "key:alice tpm",
    "key:alice max_parallel_requests",
    "key:alice max_budget",
)


def every(rpm: int, tpm: int, parallel: int, budget: int) -> dict[str, int]:
    return dict(zip(NAMES, (rpm, tpm, parallel, budget), strict=True))


class TestEnding:
    def test_gives_the_place_back_and_keeps_the_request(self, callers: CallerRig) -> None:
        callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
        assert callers.settle_caller("r.1", tokens=100, nanousd=30) == "done"
        assert callers.taken(EVERY) == every(1, 100, 0, 30)
        assert callers.client.exists(callers.keys["reservations"], callers.keys["reserved"]) == 0
        assert "key:alice:parallel" not in callers.limit_fields()

    def test_of_what_was_never_sent_gives_all_back(self, callers: CallerRig) -> None:
        callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
        assert callers.settle_caller("r.1", outcome="unused") == "done"
        assert callers.taken(EVERY) == every(0, 0, 0, 0)

    @pytest.mark.parametrize("outcome", ["used", "unused"])
    def test_again_changes_nothing(self, callers: CallerRig, outcome: str) -> None:
        callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
        callers.settle_caller("r.1", tokens=100, nanousd=30)
        before = callers.state()
        assert callers.settle_caller("r.1", outcome=outcome, tokens=900, nanousd=900) == "gone"
        assert callers.state() == before

    def test_of_an_unknown_one_changes_nothing(self, callers: CallerRig) -> None:
        before = callers.state()
        held = f"lease_ms={LEASE_MS} at_ms={callers.now_ms} tokens=1 nanousd=1 tpm=key:alice"
        assert callers.settle_caller("r.1", held=held, tokens=900) == "gone"
        assert callers.state() == before

    def test_needs_nothing_told_while_it_stands(self, callers: CallerRig) -> None:
        """The answer to the reservation was lost: nobody knows what it holds."""
        callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
        assert callers.settle_caller("r.1", held="", outcome="unused") == "done"
        assert callers.taken(EVERY) == every(0, 0, 0, 0)

    def test_leaves_other_reservations_alone(self, callers: CallerRig) -> None:
        callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
        callers.reserve("r.2", EVERY, tokens=300, nanousd=50)
        callers.settle_caller("r.1", outcome="unused")
        assert callers.taken(EVERY) == every(1, 300, 1, 50)

    @pytest.mark.parametrize("left", ["", "novelty=1", "x"])
    def test_follows_its_holder_when_the_record_was_edited(
        self, callers: CallerRig, left: str
    ) -> None:
        callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
        callers.client.hset(callers.keys["reserved"], "r.1", left)
        assert callers.settle_caller("r.1", outcome="unused") == "done"
        assert callers.taken(EVERY) == every(0, 0, 0, 0)

    def test_follows_its_holder_when_the_record_was_deleted(self, callers: CallerRig) -> None:
        callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
        callers.client.hdel(callers.keys["reserved"], "r.1")
        assert callers.settle_caller("r.1", tokens=1, nanousd=1) == "done"
        assert callers.taken(EVERY) == every(1, 1, 0, 1)

    def test_with_another_outcome_is_our_own_bug(self, callers: CallerRig) -> None:
        with pytest.raises(ResponseError, match="BADARG"):
            callers.settle_caller("r.1", outcome="success")


class TestTokens:
    def test_used_beyond_the_reservation_are_charged_at_once(self, callers: CallerRig) -> None:
        callers.reserve("r.1", TOKENS, tokens=400)
        callers.settle_caller("r.1", tokens=950)
        assert callers.reserve("r.2", TOKENS, tokens=51).status == "refused"
        assert callers.reserve("r.3", TOKENS, tokens=50).is_reserved

    def test_used_beyond_the_limit_keep_everybody_out(self, callers: CallerRig) -> None:
        callers.reserve("r.1", TOKENS, tokens=400)
        callers.settle_caller("r.1", tokens=5000)
        assert callers.reserve("r.2", TOKENS, tokens=1).status == "refused"
        assert callers.taken(TOKENS) == {"key:alice tpm": 5000}

    def test_five_of_400_under_1000_are_two_until_one_has_used_less(
        self, callers: CallerRig
    ) -> None:
        granted = [callers.reserve(f"r.{n}", TOKENS, tokens=400).is_reserved for n in range(5)]
        assert granted == [True, True, False, False, False]
        callers.settle_caller("r.0", tokens=100)
        assert callers.reserve("r.5", TOKENS, tokens=400).is_reserved
        assert callers.taken(TOKENS) == {"key:alice tpm": 900}

    def test_come_back_to_the_part_that_they_were_taken_from(self, callers: CallerRig) -> None:
        callers.reserve("r.1", TOKENS, tokens=400)
        callers.later(5 * PART_MS)
        callers.reserve("r.2", TOKENS, tokens=600)
        callers.settle_caller("r.1", tokens=100)
        callers.later(WINDOW_MS - 4 * PART_MS)  # the first part counts no more
        assert callers.taken(TOKENS) == {"key:alice tpm": 600}

    def test_over_are_charged_to_the_part_that_they_were_reserved_in(
        self, callers: CallerRig
    ) -> None:
        callers.reserve("r.1", TOKENS, tokens=400)
        callers.later(30 * SECOND)
        callers.settle_caller("r.1", tokens=900)
        callers.later(WINDOW_MS + PART_MS - 30 * SECOND)
        assert callers.taken(TOKENS) == {"key:alice tpm": 0}

    @pytest.mark.parametrize("limited", [TOKENS, scope(tpm=fixed(1000))], ids=["sliding", "fixed"])
    def test_over_of_a_window_that_has_gone_count_from_now_on(
        self, callers: CallerRig, limited: object
    ) -> None:
        callers.reserve("r.1", limited, tokens=400, lease_ms=HOUR)
        callers.later(2 * MINUTE)
        callers.settle_caller("r.1", tokens=900)
        assert callers.taken(limited) == {"key:alice tpm": 500}
        callers.later(WINDOW_MS + PART_MS)
        assert callers.taken(limited) == {"key:alice tpm": 0}

    @pytest.mark.parametrize("limited", [TOKENS, scope(tpm=fixed(1000))], ids=["sliding", "fixed"])
    def test_that_were_not_used_of_a_window_that_has_gone_are_dropped(
        self, callers: CallerRig, limited: object
    ) -> None:
        callers.reserve("r.1", limited, tokens=400, lease_ms=HOUR)
        callers.later(2 * MINUTE)
        callers.reserve("r.2", limited, tokens=300)
        callers.settle_caller("r.1", tokens=0)
        assert callers.taken(limited) == {"key:alice tpm": 300}

    def test_come_back_to_a_fixed_window_while_it_lasts(self, callers: CallerRig) -> None:
        limited = scope(tpm=fixed(1000))
        callers.reserve("r.1", limited, tokens=400)
        callers.later(59 * SECOND)
        callers.renew_caller("r.1")
        callers.settle_caller("r.1", tokens=100)
        assert callers.taken(limited) == {"key:alice tpm": 100}

    def test_never_fall_below_none(self, callers: CallerRig) -> None:
        callers.reserve("r.1", TOKENS, tokens=400)
        part = callers.now_ms // PART_MS
        callers.put_limits({"key:alice:tpm": f"sliding {WINDOW_MS} {part} 30 10 20"})
        callers.settle_caller("r.1", tokens=0)
        assert callers.taken(TOKENS) == {"key:alice tpm": 20}

    def test_of_a_window_that_was_deleted_are_forgotten(self, callers: CallerRig) -> None:
        callers.reserve("r.1", TOKENS, tokens=400)
        callers.client.hdel(callers.keys["limits"], "key:alice:tpm")
        callers.settle_caller("r.1", tokens=900)
        assert callers.taken(TOKENS) == {"key:alice tpm": 0}


class TestMoney:
    def test_held_becomes_what_it_has_cost(self, callers: CallerRig) -> None:
        callers.reserve("r.1", MONEY, nanousd=400)
        callers.settle_caller("r.1", nanousd=150)
        assert callers.limit_fields()["key:alice:budget"].endswith("spent=150 held=0")

    def test_beyond_the_reservation_is_charged(self, callers: CallerRig) -> None:
        callers.reserve("r.1", MONEY, nanousd=400)
        callers.settle_caller("r.1", nanousd=2000)
        assert callers.reserve("r.2", MONEY, nanousd=1).status == "spent"

    def test_reserved_before_the_budget_became_whole_is_no_part_of_the_new_one(
        self, callers: CallerRig
    ) -> None:
        callers.reserve("r.1", MONEY, nanousd=400, lease_ms=2 * HOUR)
        callers.later(HOUR)
        callers.reserve("r.2", MONEY, nanousd=300)
        callers.settle_caller("r.1", nanousd=100)
        assert callers.limit_fields()["key:alice:budget"].endswith("spent=0 held=300")

    def test_beyond_a_reservation_of_the_budget_before_is_charged_to_the_new_one(
        self, callers: CallerRig
    ) -> None:
        callers.reserve("r.1", MONEY, nanousd=400, lease_ms=2 * HOUR)
        callers.later(HOUR)
        callers.settle_caller("r.1", nanousd=450)
        assert callers.taken(MONEY)["key:alice max_budget"] == 50

    def test_many_who_find_the_budget_over_begin_it_anew_once(self, callers: CallerRig) -> None:
        callers.reserve("r.0", MONEY, nanousd=1000)
        callers.settle_caller("r.0", nanousd=1000)
        callers.later(HOUR)
        for number in range(1, 6):
            callers.reserve(f"r.{number}", MONEY, nanousd=100)
            callers.settle_caller(f"r.{number}", nanousd=100)
            callers.later(SECOND)
        assert callers.taken(MONEY) == {"key:alice max_budget": 500}

    def test_never_falls_below_none(self, callers: CallerRig) -> None:
        callers.reserve("r.1", MONEY, nanousd=400)
        text = f"start_ms={callers.now_ms} duration_ms={HOUR} spent=0 held=7"
        callers.put_limits({"key:alice:budget": text})
        callers.settle_caller("r.1", nanousd=0)
        assert callers.taken(MONEY) == {"key:alice max_budget": 0}


class TestOneThatHasLapsed:
    """Its replica was gone for a lease, and comes back with what was used."""

    @pytest.fixture
    def late(self, callers: CallerRig) -> CallerRig:
        callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
        callers.later(LEASE_MS)
        assert callers.reap_caller() == 1
        return callers

    def test_stays_charged_until_then(self, late: CallerRig) -> None:
        assert late.taken(EVERY) == every(1, 400, 0, 70)
        assert late.limit_fields()["key:alice:budget"].endswith("spent=70 held=0")

    def test_is_corrected_once_and_gives_no_place_back(self, late: CallerRig) -> None:
        late.reserve("r.2", EVERY, tokens=1, nanousd=1)
        assert late.settle_caller("r.1", tokens=100, nanousd=30) == "late"
        assert late.taken(EVERY) == every(2, 101, 1, 31)
        assert late.settle_caller("r.1", tokens=100, nanousd=30) == "gone"
        assert late.taken(EVERY) == every(2, 101, 1, 31)

    def test_is_charged_what_goes_beyond_it(self, late: CallerRig) -> None:
        late.settle_caller("r.1", tokens=900, nanousd=100)
        assert late.taken(EVERY) == every(1, 900, 0, 100)

    def test_of_which_nothing_was_sent_gives_all_back(self, late: CallerRig) -> None:
        late.settle_caller("r.1", outcome="unused")
        assert late.taken(EVERY) == every(0, 0, 0, 0)

    def test_and_was_never_heard_of_stays_charged(self, late: CallerRig) -> None:
        assert late.settle_caller("r.1", held="", outcome="unused") == "late"
        assert late.taken(EVERY) == every(1, 400, 0, 70)

    def test_for_more_than_ten_minutes_is_forgotten(self, late: CallerRig) -> None:
        late.later(10 * MINUTE)
        assert late.settle_caller("r.1", tokens=100) == "gone"

    def test_and_was_reserved_anew_is_an_ordinary_one(self, late: CallerRig) -> None:
        late.reserve("r.1", EVERY, tokens=400, nanousd=70)
        assert late.settle_caller("r.1", outcome="unused") == "done"
        assert late.settle_caller("r.1", outcome="unused") == "gone"
        assert late.taken(EVERY) == every(1, 400, 0, 70)
