"""Limits of endpoints in `admit`: all are judged before any is taken, each says what it must."""

from __future__ import annotations

import pytest
from msgspec import structs

from gateway.core.limits import Limit
from tests.lua.limited import asking, limited, taken
from tests.lua.rig import CALLER, LEASE_MS, MINUTE, SECOND, START_MS, Rig

WINDOW_MS, PART_MS = MINUTE, 2 * SECOND
EVERY = limited("a", rpm=3, tpm=1000, itpm=600, otpm=400, max_parallel_requests=3)
PLACES = limited("a", max_parallel_requests=2)


class TestTaking:
    def test_takes_of_every_limit_what_the_request_needs(self, rig: Rig) -> None:
        reply = rig.admit("r.1", EVERY, prompt=asking(300, 100))

        part = START_MS // PART_MS
        assert rig.fields() == {
            "a:inflight": "1",
            "a:prefill_tokens": "300",
            "a:rpm": f"sliding {WINDOW_MS} {part} 1 1",
            "a:tpm": f"sliding {WINDOW_MS} {part} 400 400",
            "a:itpm": f"sliding {WINDOW_MS} {part} 300 300",
            "a:otpm": f"sliding {WINDOW_MS} {part} 100 100",
        }
        assert reply.taken == f"rpm,tpm,itpm,otpm:300:100:{START_MS}"
        assert rig.holding("r.1") == (
            f"location=a lease_ms={LEASE_MS} tokens=300 taken={reply.taken}"
        )

    def test_repeated_takes_nothing_again_and_answers_the_same(self, rig: Rig) -> None:
        first = rig.admit("r.1", EVERY, prompt=asking(300, 100))
        before = rig.state()
        again = rig.admit("r.1", EVERY, prompt=asking(300, 100))
        assert (again.location, again.taken) == ("a", first.taken)
        assert rig.state() == before

    @pytest.mark.parametrize("one", [{"rpm": 1}, {"tpm": 4}, {"max_parallel_requests": 1}], ids=str)
    def test_repeated_at_the_limit_is_not_refused(self, rig: Rig, one: dict[str, int]) -> None:
        for _ in range(2):
            assert rig.admit("r.1", limited("a", **one), prompt=asking(3, 1)).is_admitted

    def test_without_limits_takes_nothing(self, rig: Rig) -> None:
        assert rig.admit("r.1", "a 1").taken == ""
        assert rig.fields() == {"a:inflight": "1"}

    def test_of_places_alone_writes_no_window(self, rig: Rig) -> None:
        assert rig.admit("r.1", PLACES).taken == ""
        assert rig.fields() == {"a:inflight": "1"}

    def test_of_one_endpoint_takes_nothing_of_another(self, rig: Rig) -> None:
        both = f"{limited('a', rpm=1)} {limited('b', rpm=1)}"
        assert rig.admit("r.1", both).location == "a"
        assert rig.admit("r.2", both).location == "b"
        assert rig.admit("r.3", both).status == "refused"


class TestTheAnswerThatIsReckonedWith:
    """As many tokens as it may have, but no more than the model's answers have as a rule.

    A request that does not say is never kept away for good.
    """

    @pytest.mark.parametrize(
        ("may_have", "usual", "tpm", "reserved"),
        [
            (50, "", 100_000, 50),
            (0, "", 100_000, 1024),
            (0, "", 1000, 250),
            (0, "", 3, 1),
            (50, "80.0", 100_000, 50),
            (200, "80.9", 100_000, 80),
            (0, "80.0", 100_000, 80),
            (0, "80.0", 200, 50),
            (70, "80.0", 200, 70),
            (70, "", 200, 70),
            (0, "nan", 1000, 250),
            (0, "-7", 1000, 250),
            (60, "many", 1000, 60),
        ],
    )
    def test_is(self, rig: Rig, may_have: int, usual: str, tpm: int, reserved: int) -> None:
        if usual:
            rig.put({"output_tokens": usual})
        rig.admit("r.1", limited("a", tpm=tpm), prompt=asking(2, may_have))
        assert taken(rig, "a:tpm") == 2 + reserved

    def test_where_nobody_says_is_a_quarter_of_the_least_limit(self, rig: Rig) -> None:
        rig.admit("r.1", limited("a", tpm=4000, otpm=200, itpm=8), prompt=asking(2))
        assert taken(rig, "a:otpm") == 50


class TestRefusing:
    @pytest.mark.parametrize(
        ("kind", "reason"),
        [
            ("rpm", "rpm_limit"),
            ("tpm", "tpm_limit"),
            ("itpm", "itpm_limit"),
            ("otpm", "otpm_limit"),
            ("max_parallel_requests", "parallel_limit"),
        ],
    )
    def test_begins_beyond_the_limit_and_not_at_it(self, rig: Rig, kind: str, reason: str) -> None:
        one = limited("a", **{kind: {"tpm": 20, "itpm": 10, "otpm": 10}.get(kind, 2)})
        for number in range(2):
            assert rig.admit(f"r.{number}", one, prompt=asking(5, 5)).is_admitted
        refused = rig.admit("r.next", one, prompt=asking(5, 5))
        assert refused.passed_over() == {"a": reason}

    @pytest.mark.parametrize("kind", ["tpm", "itpm", "otpm"])
    @pytest.mark.parametrize("tokens", [599, 600, 601])
    def test_tokens_fit_up_to_the_limit(self, rig: Rig, kind: str, tokens: int) -> None:
        one = limited("a", **{kind: 1000})
        other = 0 if kind == "tpm" else 1000

        def ask(count: int) -> object:
            """So many of the kind, and whatever of the other one."""
            both = (count, other) if kind == "itpm" else (other, count)
            return asking(*both)

        rig.admit("r.1", one, prompt=ask(400))
        assert rig.admit("r.2", one, prompt=ask(tokens)).is_admitted == (tokens <= 600)

    def test_writes_nothing(self, rig: Rig) -> None:
        rig.admit("r.1", EVERY, prompt=asking(300, 300))
        before = rig.state()
        assert rig.admit("r.2", EVERY, prompt=asking(1, 300)).status == "refused"
        assert rig.state() == before

    def test_by_any_limit_takes_of_no_other(self, rig: Rig) -> None:
        """A request refused for its place costs none of the requests per minute."""
        one = limited("a", rpm=2, max_parallel_requests=1)
        rig.admit("r.a", one)
        assert rig.admit("r.b", one).passed_over() == {"a": "parallel_limit"}
        rig.settle("r.a")
        assert rig.admit("r.c", one).is_admitted

    def test_one_request_a_minute_is_one(self, rig: Rig) -> None:
        one = limited("a", rpm=1)
        assert [rig.admit(f"r.{n}", one).is_admitted for n in range(3)] == [True, False, False]

    def test_takes_no_half_open_probe(self, rig: Rig) -> None:
        rig.open_circuit()
        rig.later(rig.policy.cooldown_ms)
        rig.admit("r.1", "a 1", order="pinned")
        before = rig.state()
        refused = rig.admit("r.2", limited("a", max_parallel_requests=1))
        assert refused.passed_over() == {"a": "parallel_limit"}
        assert rig.state() == before

    def test_frees_the_place_of_an_expired_claim_first(self, rig: Rig) -> None:
        one = limited("a", max_parallel_requests=1)
        rig.admit("dead.1", one)
        rig.later(LEASE_MS)
        assert rig.explain(one).location == "a"
        assert rig.admit("r.1", one).is_admitted

    @pytest.mark.parametrize("order", ["draw", "declared", "expected_ttft"])
    def test_leaves_an_endpoint_for_the_next_and_says_why(self, rig: Rig, order: str) -> None:
        both = f"{limited('a', rpm=1)} b 1"
        rig.admit("r.1", limited("a", rpm=1), order="declared")
        reply = rig.admit("r.2", both, order=order, prompt=asking(9, 9, CALLER))
        assert (reply.location, reply.passed_over()) == ("b", {"a": "rpm_limit"})

    def test_where_endpoints_are_compared_takes_of_the_chosen_one(self, rig: Rig) -> None:
        both = f"{limited('a', tpm=100)} {limited('b', tpm=100)}"
        rig.admit("r.1", both, order="expected_ttft", prompt=asking(9, 9, CALLER))
        assert (taken(rig, "a:tpm"), taken(rig, "b:tpm")) == (18, 0)

    def test_moves_a_pinned_caller(self, rig: Rig) -> None:
        both, said = f"{limited('a', rpm=1)} b 1", asking(9, 9, CALLER)
        assert rig.admit("r.1", both, prompt=said).location == "a"
        assert rig.admit("r.2", both, u=(0.9,) * 4, prompt=said).location == "b"
        assert rig.pin() == "b"

    def test_holds_for_an_operators_request_too(self, rig: Rig) -> None:
        one = limited("a", rpm=1)
        rig.admit("r.1", one, order="pinned")
        assert rig.admit("r.2", one, order="pinned").passed_over() == {"a": "rpm_limit"}

    def test_is_told_before_and_nothing_written(self, rig: Rig) -> None:
        rig.admit("r.1", EVERY, prompt=asking(300, 300))
        before = rig.state()
        told = rig.explain(EVERY, prompt=asking(1, 300))
        assert (told.status, told.reasons) == ("refused", "a=otpm_limit")
        assert rig.state() == before
        assert rig.admit("r.2", EVERY, prompt=asking(1, 300)).retry_after_ms == told.retry_after_ms


class TestWhenThereWillBeRoom:
    def test_is_told_of_the_limit_that_lasts_longest(self, rig: Rig) -> None:
        both = limited("a", rpm=1, tpm=Limit(10, is_fixed=True))
        rig.admit("r.1", both, prompt=asking(5, 5))
        refused = rig.admit("r.2", both, prompt=asking(5, 5))
        assert refused.passed_over() == {"a": "rpm_limit"}
        assert refused.retry_after_ms == WINDOW_MS + PART_MS - START_MS % PART_MS

    def test_is_never_where_a_request_needs_more_than_the_limit(self, rig: Rig) -> None:
        both = limited("a", rpm=1, tpm=100)
        rig.admit("r.1", both, prompt=asking(1, 1))
        refused = rig.admit("r.2", both, prompt=asking(100, 1))
        assert (refused.passed_over(), refused.retry_after_ms) == ({"a": "tpm_limit"}, 0)

    def test_is_soon_where_a_place_is_wanted(self, rig: Rig) -> None:
        for number in range(2):
            rig.admit(f"r.{number}", PLACES)
        assert rig.admit("r.x", PLACES).retry_after_ms == SECOND

    def test_is_the_soonest_of_all_endpoints(self, rig: Rig) -> None:
        three = f"{limited('a', rpm=1)} {limited('b', rpm=1)} {limited('c', tpm=5)}"
        rig.admit("r.1", three, order="declared", prompt=asking(9, 9))
        rig.later(10 * SECOND)
        rig.admit("r.2", three, order="declared", prompt=asking(9, 9))
        refused = rig.admit("r.3", three, order="declared", prompt=asking(9, 9))
        reasons = {"a": "rpm_limit", "b": "rpm_limit", "c": "tpm_limit"}
        assert refused.passed_over() == reasons
        assert refused.retry_after_ms == 52 * SECOND

    @pytest.mark.parametrize("is_fixed", [False, True], ids=["sliding", "fixed"])
    @pytest.mark.parametrize("early_ms", [0, 1, PART_MS - 1])
    def test_is_true_to_the_millisecond(self, rig: Rig, early_ms: int, is_fixed: bool) -> None:
        one = limited("a", rpm=Limit(1, is_fixed=is_fixed))
        rig.later(early_ms)
        rig.admit("r.1", one)
        rig.later(7 * SECOND)
        rig.later(rig.admit("r.2", one).retry_after_ms - 1)
        assert rig.admit("r.3", one).retry_after_ms == 1
        rig.later(1)
        assert rig.admit("r.4", one).is_admitted

    def test_waits_only_for_as_much_as_is_needed(self, rig: Rig) -> None:
        one = limited("a", tpm=1000)
        for number in range(4):
            rig.admit(f"r.{number}", one, prompt=asking(200, 50))
            rig.later(10 * SECOND)
        assert rig.admit("r.x", one, prompt=asking(200, 50)).retry_after_ms == 22 * SECOND
        assert rig.admit("r.y", one, prompt=asking(200, 51)).retry_after_ms == 32 * SECOND


class TestShadows:
    @pytest.mark.parametrize(
        ("kind", "counter"),
        [
            ("rpm", "would_refuse_rpm"),
            ("tpm", "would_refuse_tpm"),
            ("itpm", "would_refuse_itpm"),
            ("otpm", "would_refuse_otpm"),
            ("max_parallel_requests", "would_refuse_parallel"),
        ],
    )
    def test_refuse_nothing_and_count_what_they_would(
        self, rig: Rig, kind: str, counter: str
    ) -> None:
        one = limited("a", **{kind: Limit(1, is_shadow=True)})
        for number in range(3):
            assert rig.admit(f"r.{number}", one, prompt=asking(1, 1)).is_admitted
        fits = 0 if kind == "tpm" else 1
        assert rig.field(f"a:{counter}") == str(3 - fits)

    def test_take_no_more_than_they_would_let_pass(self, rig: Rig) -> None:
        one = limited("a", rpm=Limit(2, is_shadow=True), tpm=1000)
        replies = [rig.admit(f"r.{number}", one, prompt=asking(1, 1)) for number in range(3)]
        assert [reply.taken.partition(":")[0] for reply in replies] == ["rpm,tpm"] * 2 + ["tpm"]
        assert (taken(rig, "a:rpm"), taken(rig, "a:tpm")) == (2, 6)

    def test_beside_a_limit_that_refuses_count_nothing(self, rig: Rig) -> None:
        one = limited("a", rpm=Limit(1, is_shadow=True), max_parallel_requests=1)
        rig.admit("r.1", one)
        before = rig.state()
        assert rig.admit("r.2", one).passed_over() == {"a": "parallel_limit"}
        assert rig.state() == before

    def test_may_have_fixed_windows(self, rig: Rig) -> None:
        one = limited("a", rpm=Limit(1, is_shadow=True, is_fixed=True))
        for number in range(2):
            rig.admit(f"r.{number}", one)
            rig.later(WINDOW_MS)
        assert rig.field("a:would_refuse_rpm") is None
        rig.later(-1)
        rig.admit("r.x", one)
        assert rig.field("a:would_refuse_rpm") == "1"


class TestWindows:
    def test_no_burst_at_an_edge_is_a_second_burst(self, rig: Rig) -> None:
        one = limited("a", rpm=3)
        rig.later(WINDOW_MS - 1)
        granted = [rig.admit(f"r.{n}", one).is_admitted for n in range(4)]
        rig.later(2)
        granted += [rig.admit(f"s.{n}", one).is_admitted for n in range(4)]
        assert sum(granted) == 3

    @pytest.mark.parametrize("parts", [1, 2, 29, 30, 31])
    def test_hold_what_was_taken_after_any_pause(self, rig: Rig, parts: int) -> None:
        one = limited("a", tpm=1000)
        rig.admit("r.1", one, prompt=asking(295, 5))
        rig.later(parts * PART_MS)
        rig.admit("r.2", one, prompt=asking(450, 50))
        rig.later(PART_MS)
        assert rig.admit("r.3", one, prompt=asking(500, 1)).passed_over() == {"a": "tpm_limit"}
        assert taken(rig, "a:tpm") == 800 - 300 * (parts > 29)

    def test_what_is_too_old_makes_room_for_as_much_and_no_more(self, rig: Rig) -> None:
        one, granted = limited("a", tpm=1000), []
        for number in range(6):
            granted.append(rig.admit(f"r.{number}", one, prompt=asking(100 * number, 100)))
            rig.later(12 * SECOND)
        assert [reply.is_admitted for reply in granted] == [True] * 4 + [False] * 2
        rig.later(PART_MS)  # and 72 s: the first two are too old, the others have 700 tokens
        assert rig.admit("r.x", one, prompt=asking(300, 1)).status == "refused"
        assert rig.admit("r.y", one, prompt=asking(299, 1)).is_admitted
        assert taken(rig, "a:tpm") == 1000

    def test_a_fixed_one_begins_with_its_first_request(self, rig: Rig) -> None:
        """Two a minute, the first at 10 s: 10 and 20 pass, 30 does not, 70 does."""
        one, granted = limited("a", rpm=Limit(2, is_fixed=True)), []
        for at_s in (10, 20, 30, 69, 70, 71, 72):
            rig.now_ms = START_MS + at_s * SECOND
            granted.append(rig.admit(f"r.{at_s}", one).is_admitted)
        assert granted == [True, True, False, False, True, True, False]

    def test_have_the_length_of_the_configuration(self, rig: Rig) -> None:
        rig.policy = structs.replace(rig.policy, window_ms=3 * SECOND)
        one = limited("a", rpm=1)
        rig.admit("r.1", one)
        assert rig.admit("r.2", one).retry_after_ms == 3100 - START_MS % 100
        rig.later(3100)
        assert rig.admit("r.3", one).is_admitted

    @pytest.mark.parametrize("other", [{"window_ms": 30 * SECOND}, {}], ids=["length", "kind"])
    def test_of_another_length_or_kind_are_void(self, rig: Rig, other: dict[str, int]) -> None:
        rig.admit("r.1", limited("a", rpm=1))
        rig.policy = structs.replace(rig.policy, **other)
        assert rig.admit("r.2", limited("a", rpm=Limit(1, is_fixed=not other))).is_admitted

    @pytest.mark.parametrize(
        "nonsense",
        ["", "full", "9", "sliding 60000 x 1 1", "fixed 60000 1", "sliding 60000 -1 1 1", "nan"],
    )
    def test_that_are_nonsense_are_no_windows(self, rig: Rig, nonsense: str) -> None:
        rig.put({"a:rpm": nonsense})
        assert rig.admit("r.1", limited("a", rpm=1)).is_admitted
        assert taken(rig, "a:rpm") == 1

    def test_that_contradict_themselves_refuse_rather_than_overflow(self, rig: Rig) -> None:
        rig.put({"a:rpm": f"sliding {WINDOW_MS} {START_MS // PART_MS} 5 0"})
        assert rig.admit("r.1", limited("a", rpm=5)).passed_over() == {"a": "rpm_limit"}

    @pytest.mark.parametrize("is_fixed", [False, True], ids=["sliding", "fixed"])
    def test_stand_still_until_a_clock_set_back_has_caught_up(
        self, rig: Rig, is_fixed: bool
    ) -> None:
        one = limited("a", rpm=Limit(1, is_fixed=is_fixed))
        rig.admit("r.1", one)
        rig.later(-20 * SECOND)
        assert rig.admit("r.2", one).retry_after_ms >= 80 * SECOND
        rig.later(20 * SECOND + WINDOW_MS + PART_MS)
        assert rig.admit("r.3", one).is_admitted

    @pytest.mark.parametrize("is_fixed", [False, True], ids=["sliding", "fixed"])
    def test_dated_further_away_than_their_length_are_void(self, rig: Rig, is_fixed: bool) -> None:
        one = limited("a", rpm=Limit(1, is_fixed=is_fixed))
        rig.admit("r.1", one)
        rig.later(-WINDOW_MS - PART_MS - 1)
        assert rig.admit("r.2", one).is_admitted
