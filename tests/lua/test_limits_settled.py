"""What an attempt has taken of its endpoint's limits becomes what it has used, once."""

from __future__ import annotations

import pytest

from gateway.core.limits import Limit
from tests.lua.limited import asking, limited, taken
from tests.lua.rig import HOUR, LEASE_MS, MINUTE, SECOND, Rig

WINDOW_MS, PART_MS = MINUTE, 2 * SECOND
EVERY = limited("a", rpm=9, tpm=1000, itpm=1000, otpm=1000, max_parallel_requests=9)
SLIDING, FIXED = limited("a", tpm=1000), limited("a", tpm=Limit(1000, is_fixed=True))
both_kinds = pytest.mark.parametrize("one", [SLIDING, FIXED], ids=["sliding", "fixed"])


def every(rig: Rig) -> list[int]:
    return [taken(rig, f"a:{kind}") for kind in ("rpm", "tpm", "itpm", "otpm")]


class TestEnding:
    @pytest.mark.parametrize(
        ("used", "left"),
        [
            ("100 20", [1, 120, 100, 20]),
            ("300 100", [1, 400, 300, 100]),
            ("700 20", [1, 720, 700, 20]),
            ("100 500", [1, 600, 100, 500]),
            ("0 0", [1, 0, 0, 0]),
            ("unsent", [0, 0, 0, 0]),
            ("", [1, 400, 300, 100]),
        ],
        ids=["less", "as much", "more input", "more output", "nothing", "unsent", "nobody knows"],
    )
    @pytest.mark.parametrize("outcome", ["success", "failure", "neutral"])
    def test_leaves_what_was_used(self, rig: Rig, outcome: str, used: str, left: list[int]) -> None:
        rig.admit("r.1", EVERY, prompt=asking(300, 100))
        assert rig.settle("r.1", outcome, used=used).status == "done"
        assert every(rig) == left
        assert rig.field("a:inflight") is None

    @pytest.mark.parametrize("used", ["1 1", "900 9", "unsent"])
    def test_again_changes_nothing(self, rig: Rig, used: str) -> None:
        reply = rig.admit("r.1", EVERY, prompt=asking(300, 100))
        rig.settle("r.1", taken=reply.taken, used="100 20")
        before = rig.state()
        assert rig.settle("r.1", taken=reply.taken, used=used).status == "gone"
        assert rig.state() == before

    def test_of_an_unknown_claim_changes_nothing(self, rig: Rig) -> None:
        rig.admit("r.1", EVERY, prompt=asking(300, 100))
        before = rig.state()
        told = f"rpm,tpm:300:100:{rig.now_ms}"
        assert rig.settle("never.1", taken=told, used="unsent").status == "gone"
        assert rig.state() == before

    def test_leaves_other_claims_alone(self, rig: Rig) -> None:
        rig.admit("r.1", EVERY, prompt=asking(300, 100))
        rig.admit("r.2", EVERY, prompt=asking(30, 10))
        rig.settle("r.1", used="unsent")
        assert every(rig) == [1, 40, 30, 10]

    def test_after_the_first_output_is_the_same(self, rig: Rig) -> None:
        rig.admit("r.1", EVERY, prompt=asking(300, 100))
        rig.first_token("r.1")
        rig.settle("r.1", used="300 20")
        assert every(rig) == [1, 320, 300, 20]

    def test_of_what_a_shadow_let_pass_corrects_nothing(self, rig: Rig) -> None:
        one = limited("a", tpm=Limit(100, is_shadow=True))
        rig.admit("r.1", one, prompt=asking(40, 40))
        rig.admit("r.2", one, prompt=asking(40, 40))
        rig.settle("r.2", used="1 1")
        assert taken(rig, "a:tpm") == 80

    def test_follows_its_holder_where_the_record_was_deleted(self, rig: Rig) -> None:
        reply = rig.admit("r.1", EVERY, prompt=asking(300, 100))
        rig.client.hdel(rig.keys["claimed"], "r.1")
        rig.settle("r.1", taken=reply.taken, used="unsent")
        assert every(rig) == [0, 0, 0, 0]

    @pytest.mark.parametrize("told", ["x", "tpm", "tpm:1:2", "tpm:1:2:3:4", "tpm:-1:2:3"])
    def test_with_a_record_that_is_nonsense_corrects_nothing(self, rig: Rig, told: str) -> None:
        rig.admit("r.1", EVERY, prompt=asking(300, 100))
        rig.client.hset(rig.keys["claimed"], "r.1", f"location=a taken={told}")
        assert rig.settle("r.1", used="1 1").status == "done"
        assert every(rig) == [1, 400, 300, 100]

    def test_of_a_claim_that_nobody_has_heard_of_gives_all_back(self, rig: Rig) -> None:
        """The answer of `admit` was lost: its caller does not know where it was granted."""
        rig.admit("r.1", EVERY, prompt=asking(300, 100))
        assert rig.settle("r.1", "neutral", at="", used="unsent").status == "done"
        assert every(rig) == [0, 0, 0, 0]
        assert rig.field("a:inflight") is None

    def test_of_a_claim_put_back_after_a_loss_is_as_its_holder_knows(self, rig: Rig) -> None:
        reply = rig.admit("r.1", EVERY, prompt=asking(300, 100))
        rig.client.delete(rig.keys["claims"], rig.keys["claimed"])
        rig.reassert("r.1")
        rig.settle("r.1", taken=reply.taken, used="100 20")
        assert every(rig) == [1, 120, 100, 20]


class TestTokens:
    def test_five_of_400_under_1000_are_two_until_one_has_used_less(self, rig: Rig) -> None:
        granted = [rig.admit(f"r.{n}", SLIDING, prompt=asking(300, 100)) for n in range(5)]
        assert [one.is_admitted for one in granted] == [True, True, False, False, False]
        rig.settle("r.0", used="80 20")
        assert rig.admit("r.5", SLIDING, prompt=asking(300, 100)).is_admitted
        assert taken(rig, "a:tpm") == 900

    @both_kinds
    def test_beyond_what_was_reserved_are_charged_at_once(self, rig: Rig, one: str) -> None:
        rig.admit("r.1", one, prompt=asking(300, 100))
        rig.settle("r.1", used="300 650")
        assert rig.admit("r.2", one, prompt=asking(50, 1)).passed_over() == {"a": "tpm_limit"}
        assert rig.admit("r.3", one, prompt=asking(49, 1)).is_admitted

    @both_kinds
    def test_beyond_the_limit_keep_everybody_out(self, rig: Rig, one: str) -> None:
        rig.admit("r.1", one, prompt=asking(300, 100))
        rig.settle("r.1", used="300 5000")
        refused = rig.admit("r.2", one, prompt=asking(1, 1))
        assert taken(rig, "a:tpm") == 5300
        rig.later(refused.retry_after_ms)
        assert rig.admit("r.3", one, prompt=asking(1, 1)).is_admitted

    def test_come_back_to_the_part_that_they_were_taken_from(self, rig: Rig) -> None:
        rig.admit("r.1", SLIDING, prompt=asking(300, 100), lease_ms=HOUR)
        rig.later(5 * PART_MS)
        rig.admit("r.2", SLIDING, prompt=asking(500, 100), lease_ms=HOUR)
        rig.settle("r.1", used="80 20")
        rig.later(WINDOW_MS - 4 * PART_MS)  # the first part counts no more
        assert taken(rig, "a:tpm") == 600

    def test_over_are_charged_to_the_part_that_they_were_reserved_in(self, rig: Rig) -> None:
        rig.admit("r.1", SLIDING, prompt=asking(300, 100), lease_ms=HOUR)
        rig.later(30 * SECOND)
        rig.settle("r.1", used="300 600")
        rig.later(WINDOW_MS + PART_MS - 30 * SECOND)
        assert taken(rig, "a:tpm") == 0

    @both_kinds
    def test_over_of_a_window_that_has_gone_count_from_now_on(self, rig: Rig, one: str) -> None:
        rig.admit("r.1", one, prompt=asking(300, 100), lease_ms=HOUR)
        rig.later(2 * MINUTE)
        rig.settle("r.1", used="300 600")
        assert taken(rig, "a:tpm") == 500
        rig.later(WINDOW_MS + PART_MS)
        assert taken(rig, "a:tpm") == 0

    @both_kinds
    def test_less_of_a_window_that_has_gone_is_dropped(self, rig: Rig, one: str) -> None:
        rig.admit("r.1", one, prompt=asking(300, 100), lease_ms=HOUR)
        rig.later(2 * MINUTE)
        rig.admit("r.2", one, prompt=asking(30, 10))
        rig.settle("r.1", used="0 1")
        assert taken(rig, "a:tpm") == 40

    @both_kinds
    def test_are_never_less_than_none(self, rig: Rig, one: str) -> None:
        reply = rig.admit("r.1", one, prompt=asking(300, 100))
        rig.client.hdel(rig.keys["endpoints"], "a:tpm")
        rig.admit("r.2", one, prompt=asking(30, 10))
        rig.settle("r.1", taken=reply.taken, used="0 0")
        assert taken(rig, "a:tpm") == 0
        assert "-" not in (rig.field("a:tpm") or "")

    def test_of_a_limit_that_was_made_whole_by_hand_stay_so(self, rig: Rig) -> None:
        rig.admit("r.1", SLIDING, prompt=asking(300, 100))
        rig.client.hdel(rig.keys["endpoints"], "a:tpm")
        rig.settle("r.1", used="0 0")
        assert rig.field("a:tpm") is None


class TestAClaimThatHasExpired:
    @pytest.fixture
    def late(self, rig: Rig) -> Rig:
        """One of two has been reaped."""
        self.taken = rig.admit("r.1", EVERY, prompt=asking(300, 100), lease_ms=1).taken
        rig.admit("r.2", EVERY, prompt=asking(30, 10))
        rig.later(LEASE_MS - 1)
        assert rig.reap() == 1
        return rig

    def test_keeps_what_it_has_taken_but_its_place(self, late: Rig) -> None:
        assert every(late) == [2, 440, 330, 110]
        assert late.field("a:inflight") == "1"

    def test_is_corrected_once_when_its_end_comes_late(self, late: Rig) -> None:
        assert late.settle("r.1", taken=self.taken, used="100 20").status == "late"
        assert every(late) == [2, 160, 130, 30]
        assert late.settle("r.1", taken=self.taken, used="unsent").status == "gone"
        assert every(late) == [2, 160, 130, 30]
        assert late.field("a:inflight") == "1"

    def test_and_was_never_heard_of_stays_charged(self, late: Rig) -> None:
        assert late.settle("r.1", "neutral", at="", used="unsent").status == "late"
        assert every(late) == [2, 440, 330, 110]


class TestWhatAnswersAreTakenToHave:
    @pytest.fixture
    def usual(self, rig: Rig) -> Rig:
        """Of late they had a hundred tokens."""
        rig.put({"output_tokens": "100.0"})
        return rig

    @pytest.mark.parametrize(("output", "learned"), [(24, "1014.0"), (2048, "1280.0")])
    @pytest.mark.parametrize("before", ["", "nan", "inf", "-3", "0", "x"])
    def test_is_1024_at_first_and_where_nonsense_stands(
        self, rig: Rig, before: str, output: int, learned: str
    ) -> None:
        rig.put({"output_tokens": before})
        rig.admit("r.1", EVERY, prompt=asking(9, 9))
        rig.settle("r.1", used=f"9 {output}")
        assert rig.field("output_tokens") == learned

    @pytest.mark.parametrize(("output", "learned"), [(200, "125.0"), (100, "100.0"), (50, "99.5")])
    def test_is_learned_quickly_from_longer_and_slowly_from_shorter_ones(
        self, usual: Rig, output: int, learned: str
    ) -> None:
        usual.admit("r.1", EVERY, prompt=asking(9, 9))
        usual.settle("r.1", used=f"9 {output}")
        assert usual.field("output_tokens") == learned

    @pytest.mark.parametrize(
        ("outcome", "used"),
        [
            ("failure", "9 500"),
            ("neutral", "9 500"),
            ("success", "9 0"),
            ("success", ""),
            ("success", "unsent"),
        ],
    )
    def test_is_learned_from_whole_answers_alone(self, usual: Rig, outcome: str, used: str) -> None:
        usual.admit("r.1", EVERY, prompt=asking(9, 9))
        usual.settle("r.1", outcome, used=used)
        assert usual.field("output_tokens") == "100.0"

    def test_is_learned_where_a_limit_counts_tokens(self, rig: Rig) -> None:
        rig.admit("r.1", limited("a", rpm=9), prompt=asking(9, 9))
        rig.settle("r.1", used="9 100")
        assert rig.field("output_tokens") is None

    def test_is_reserved_for_the_next_and_holds_for_all_endpoints(self, usual: Rig) -> None:
        usual.admit("r.1", limited("b", otpm=1000), prompt=asking(9, 400))
        assert taken(usual, "b:otpm") == 100
