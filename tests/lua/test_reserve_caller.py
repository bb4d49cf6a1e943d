"""reserve_caller: all limits are judged before any is taken, and each says what it must."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from gateway.core.limits import Left, Room
from tests.lua.caller_rig import PART_MS, WINDOW_MS, CallerRig, fixed, scope, shadow
from tests.lua.rig import DAY, HOUR, LEASE_MS, MINUTE, SECOND, START_MS

REQUESTS = scope(rpm=3)
TOKENS = scope(tpm=1000)
PLACES = scope(max_parallel_requests=2)
MONEY = scope(max_budget=1000, budget_duration_ms=HOUR)
EVERY = scope(rpm=3, tpm=1000, max_parallel_requests=3, max_budget=1000, budget_duration_ms=HOUR)


class TestGranting:
    def test_takes_of_every_limit_and_keeps_a_lease(self, callers: CallerRig) -> None:
        reply = callers.reserve("r.1", EVERY, tokens=400, nanousd=70)

        assert reply.is_reserved
        assert (reply.limit, reply.retry_after_ms, reply.fits_again) == ("", 0, 1)
        part = START_MS // PART_MS
        assert callers.limit_fields() == {
            "key:alice:rpm": f"sliding {WINDOW_MS} {part} 1 1",
            "key:alice:tpm": f"sliding {WINDOW_MS} {part} 400 400",
            "key:alice:parallel": "1",
            "key:alice:budget": f"start_ms={START_MS} duration_ms={HOUR} spent=0 held=70",
        }
        assert callers.client.zscore(callers.keys["reservations"], "r.1") == START_MS + LEASE_MS
        assert callers.client.hget(callers.keys["reserved"], "r.1") == reply.held
        assert reply.held == (
            f"lease_ms={LEASE_MS} at_ms={START_MS} tokens=400 nanousd=70 rpm=key:alice "
            "tpm=key:alice parallel=key:alice budget=key:alice"
        )

    def test_repeated_answers_alike_and_takes_nothing_again(self, callers: CallerRig) -> None:
        first = callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
        before = callers.state()
        assert callers.reserve("r.1", EVERY, tokens=400, nanousd=70) == first
        assert callers.state() == before

    def test_repeated_at_the_limit_is_not_refused(self, callers: CallerRig) -> None:
        one = scope(rpm=1, max_parallel_requests=1)
        callers.reserve("r.1", one)
        assert callers.reserve("r.1", one).is_reserved

    def test_without_limits_takes_nothing(self, callers: CallerRig) -> None:
        reply = callers.reserve("r.1", scope())
        assert reply.is_reserved
        assert reply.room == Room()
        assert callers.limit_fields() == {}

    def test_takes_of_each_scope(self, callers: CallerRig) -> None:
        scopes = scope(rpm=9), scope("user", "bob", rpm=8), scope("team", "acme", tpm=100)
        callers.reserve("r.1", *scopes, tokens=30)
        assert callers.taken(*scopes) == {
            "key:alice rpm": 1,
            "user:bob rpm": 1,
            "team:acme tpm": 30,
        }

    def test_scopes_of_odd_names_stay_apart(self, callers: CallerRig) -> None:
        scopes = scope("key", "a,b", rpm=1), scope("key", "a b", rpm=1), scope("key", "a=é", rpm=1)
        callers.reserve("r.1", *scopes)
        assert [callers.reserve(f"r.{one.id}", one).status for one in scopes] == ["refused"] * 3
        callers.settle_caller("r.1", outcome="unused")
        assert set(callers.taken(*scopes).values()) == {0}


class TestRefusing:
    @pytest.mark.parametrize(
        ("limited", "fits", "limit"),
        [
            (REQUESTS, 3, "key:alice rpm"),
            (TOKENS, 2, "key:alice tpm"),
            (PLACES, 2, "key:alice parallel"),
            (MONEY, 2, "key:alice budget"),
        ],
        ids=["rpm", "tpm", "parallel", "budget"],
    )
    def test_begins_beyond_the_limit_and_not_at_it(
        self, callers: CallerRig, limited: object, fits: int, limit: str
    ) -> None:
        for number in range(fits):
            assert callers.reserve(f"r.{number}", limited, tokens=500, nanousd=500).is_reserved
        refused = callers.reserve("r.next", limited, tokens=500, nanousd=500)
        assert not refused.is_reserved
        assert refused.limit == limit

    @pytest.mark.parametrize("tokens", [599, 600, 601])
    def test_tokens_fit_up_to_the_limit(self, callers: CallerRig, tokens: int) -> None:
        callers.reserve("r.1", TOKENS, tokens=400)
        assert callers.reserve("r.2", TOKENS, tokens=tokens).is_reserved == (tokens <= 600)

    @pytest.mark.parametrize("nanousd", [599, 600, 601])
    def test_money_fits_up_to_the_limit(self, callers: CallerRig, nanousd: int) -> None:
        callers.reserve("r.1", MONEY, nanousd=400)
        assert callers.reserve("r.2", MONEY, nanousd=nanousd).is_reserved == (nanousd <= 600)

    def test_writes_nothing(self, callers: CallerRig) -> None:
        callers.reserve("r.1", EVERY, tokens=600)
        before = callers.state()
        assert callers.reserve("r.2", EVERY, tokens=600).status == "refused"
        assert callers.state() == before

    def test_by_any_limit_takes_of_no_other(self, callers: CallerRig) -> None:
        """A request refused for its place costs none of the requests per minute."""
        one = scope(rpm=2, max_parallel_requests=1)
        callers.reserve("a", one)
        assert callers.reserve("b", one).limit == "key:alice parallel"
        callers.settle_caller("a")
        assert callers.reserve("c", one).is_reserved

    def test_by_any_scope_takes_of_no_other(self, callers: CallerRig) -> None:
        scopes = scope(rpm=9), scope("team", "acme", rpm=1)
        callers.reserve("r.1", *scopes)
        assert callers.reserve("r.2", *scopes).limit == "team:acme rpm"
        assert callers.taken(*scopes) == {"key:alice rpm": 1, "team:acme rpm": 1}

    def test_names_the_limit_that_lasts_longest(self, callers: CallerRig) -> None:
        scopes = scope(rpm=1, max_budget=10, budget_duration_ms=HOUR), scope("team", "acme", rpm=1)
        callers.reserve("r.1", *scopes, nanousd=10)
        callers.settle_caller("r.1", nanousd=10)
        callers.later(10 * SECOND)
        refused = callers.reserve("r.2", *scopes, nanousd=10)
        assert (refused.limit, refused.retry_after_ms) == (
            "key:alice budget",
            HOUR - 10 * SECOND,
        )

    def test_names_a_limit_that_will_never_fit_before_any_that_will(
        self, callers: CallerRig
    ) -> None:
        both = scope(rpm=1, tpm=100)
        callers.reserve("r.1", both, tokens=1)
        refused = callers.reserve("r.2", both, tokens=101)
        assert (refused.limit, refused.left, refused.retry_after_ms) == ("key:alice tpm", 99, 0)

    def test_for_want_of_a_place_says_soon(self, callers: CallerRig) -> None:
        one = scope(max_parallel_requests=1)
        callers.reserve("r.1", one)
        assert callers.reserve("r.2", one).retry_after_ms == SECOND

    def test_what_is_left_is_told_as_none_rather_than_less(self, callers: CallerRig) -> None:
        callers.reserve("r.1", TOKENS, tokens=900)
        callers.settle_caller("r.1", tokens=5000)
        refused = callers.reserve("r.2", TOKENS, tokens=1)
        assert (refused.left, refused.tpm_left) == (0, 0)


class TestSlidingWindow:
    def test_forgets_a_part_when_all_of_it_is_older_than_the_length(
        self, callers: CallerRig
    ) -> None:
        one = scope(rpm=1)
        callers.later(PART_MS - 1)  # at the end of its part
        callers.reserve("r.1", one)
        callers.later(WINDOW_MS)
        assert callers.reserve("r.2", one).status == "refused"
        callers.later(1)
        assert callers.reserve("r.3", one).is_reserved

    @pytest.mark.parametrize("early_ms", [0, 1, PART_MS - 1])
    def test_says_when_there_will_be_room(self, callers: CallerRig, early_ms: int) -> None:
        one = scope(rpm=1)
        callers.later(early_ms)
        callers.reserve("r.1", one)
        callers.later(7 * SECOND)
        refused = callers.reserve("r.2", one)
        assert refused.retry_after_ms == refused.rpm_reset_ms
        callers.later(refused.retry_after_ms - 1)
        assert callers.reserve("r.3", one).status == "refused"
        callers.later(1)
        assert callers.reserve("r.4", one).is_reserved

    def test_waits_only_for_as_much_as_is_needed(self, callers: CallerRig) -> None:
        for number in range(4):
            callers.reserve(f"r.{number}", TOKENS, tokens=250)
            callers.later(10 * SECOND)
        assert callers.reserve("r.x", TOKENS, tokens=250).retry_after_ms == 22 * SECOND
        assert callers.reserve("r.y", TOKENS, tokens=251).retry_after_ms == 32 * SECOND

    def test_a_burst_at_its_edge_is_no_second_burst(self, callers: CallerRig) -> None:
        callers.later(WINDOW_MS - 1)
        granted = [callers.reserve(f"r.{n}", REQUESTS).is_reserved for n in range(4)]
        callers.later(2)
        granted += [callers.reserve(f"s.{n}", REQUESTS).is_reserved for n in range(4)]
        assert sum(granted) == 3

    def test_keeps_its_end_however_often_it_is_asked(self, callers: CallerRig) -> None:
        """A request every half minute passes at two a minute for as long as it likes."""
        two = scope(rpm=3)
        for number in range(20):
            assert callers.reserve(f"r.{number}", two).is_reserved
            callers.later(30 * SECOND)

    def test_has_the_length_it_is_given(self, callers: CallerRig) -> None:
        one = scope(rpm=1)
        callers.reserve("r.1", one, window_ms=3000)
        callers.later(3000)
        assert callers.reserve("r.2", one, window_ms=3000).status == "refused"
        callers.later(100)
        assert callers.reserve("r.3", one, window_ms=3000).is_reserved

    def test_of_another_length_is_void(self, callers: CallerRig) -> None:
        one = scope(rpm=1)
        callers.reserve("r.1", one, window_ms=3000)
        assert callers.reserve("r.2", one, window_ms=6000).is_reserved

    @pytest.mark.parametrize("length_ms", [1, 7, 29, 31, 1000, 3_601_003])
    def test_never_holds_more_than_the_limit_whatever_its_length(
        self, callers: CallerRig, length_ms: int
    ) -> None:
        granted: list[int] = []
        for number in range(60):
            if callers.reserve(f"r.{number}", REQUESTS, window_ms=length_ms).is_reserved:
                granted.append(callers.now_ms)
            callers.later(max(length_ms // 11, 1))
        assert all(sum(end - length_ms < one <= end for one in granted) <= 3 for end in granted)
        assert len(granted) > 3


class TestFixedWindow:
    def test_begins_with_its_first_request(self, callers: CallerRig) -> None:
        two = scope(rpm=fixed(2))
        callers.later(10 * SECOND)
        assert callers.reserve("r.1", two).is_reserved
        callers.later(10 * SECOND)
        assert callers.reserve("r.2", two).is_reserved
        callers.later(10 * SECOND)
        refused = callers.reserve("r.3", two)
        assert (refused.status, refused.retry_after_ms) == ("refused", 40 * SECOND)
        callers.later(40 * SECOND)
        assert callers.reserve("r.4", two).is_reserved
        assert callers.taken(two) == {"key:alice rpm": 1}

    def test_that_was_sliding_is_void(self, callers: CallerRig) -> None:
        callers.reserve("r.1", scope(rpm=1))
        assert callers.reserve("r.2", scope(rpm=fixed(1))).is_reserved
        assert callers.reserve("r.3", scope(rpm=fixed(1))).status == "refused"


class TestBudget:
    def test_is_whole_again_when_its_duration_has_passed_since_it_was_begun(
        self, callers: CallerRig
    ) -> None:
        callers.reserve("r.1", MONEY, nanousd=1000)
        callers.settle_caller("r.1", nanousd=1000)
        callers.later(HOUR - 1)
        refused = callers.reserve("r.2", MONEY, nanousd=1)
        assert (refused.status, refused.retry_after_ms) == ("spent", 1)
        callers.later(1)
        assert callers.reserve("r.3", MONEY, nanousd=1).is_reserved
        assert callers.taken(MONEY) == {"key:alice max_budget": 1}

    def test_without_a_duration_is_for_good(self, callers: CallerRig) -> None:
        once = scope(max_budget=1000)
        callers.reserve("r.1", once, nanousd=1000)
        callers.settle_caller("r.1", nanousd=1000)
        callers.later(400 * DAY)
        refused = callers.reserve("r.2", once, nanousd=1)
        assert (refused.status, refused.retry_after_ms) == ("spent", 0)

    def test_that_is_only_held_is_not_spent(self, callers: CallerRig) -> None:
        callers.reserve("r.1", MONEY, nanousd=1000)
        refused = callers.reserve("r.2", MONEY, nanousd=1)
        assert (refused.status, refused.retry_after_ms) == ("refused", SECOND)
        callers.settle_caller("r.1", nanousd=10)
        assert callers.reserve("r.3", MONEY, nanousd=1).is_reserved

    @pytest.mark.parametrize("spent", [1000, 5000])
    def test_that_is_spent_refuses_also_what_costs_nothing(
        self, callers: CallerRig, spent: int
    ) -> None:
        callers.reserve("r.1", MONEY, nanousd=900)
        callers.settle_caller("r.1", nanousd=spent)
        assert callers.reserve("r.2", MONEY, nanousd=0).status == "spent"

    def test_smaller_than_the_request_never_fits(self, callers: CallerRig) -> None:
        refused = callers.reserve("r.1", MONEY, nanousd=1001)
        assert (refused.status, refused.retry_after_ms, refused.left) == ("spent", 0, 1000)

    def test_of_which_nothing_is_used_begins_anew(self, callers: CallerRig) -> None:
        callers.reserve("r.1", MONEY, nanousd=1000)
        callers.settle_caller("r.1", outcome="unused")
        callers.later(HOUR // 2)
        callers.reserve("r.2", MONEY, nanousd=10)
        assert callers.uses(MONEY)["key:alice max_budget"].reset_ms == HOUR

    def test_takes_another_duration_over_at_once(self, callers: CallerRig) -> None:
        callers.reserve("r.1", MONEY, nanousd=1000)
        callers.settle_caller("r.1", nanousd=1000)
        callers.later(MINUTE)
        longer = scope(max_budget=1000, budget_duration_ms=DAY)
        assert callers.reserve("r.2", longer, nanousd=1).retry_after_ms == DAY - MINUTE
        shorter = scope(max_budget=1000, budget_duration_ms=MINUTE)
        assert callers.reserve("r.3", shorter, nanousd=1).is_reserved

    def test_sums_beyond_what_a_double_prints_in_full_stay_exact(self, callers: CallerRig) -> None:
        rich = scope(max_budget=9_000_000_000_000_000)
        callers.reserve("r.1", rich, nanousd=1_234_567_890_123_457)
        callers.settle_caller("r.1", nanousd=4_999_999_999_999_999)
        callers.reserve("r.2", rich, nanousd=1)
        assert callers.taken(rich) == {"key:alice max_budget": 5_000_000_000_000_000}


class TestShadow:
    @pytest.mark.parametrize(
        ("kind", "limited"),
        [
            ("rpm", scope(rpm=shadow(1))),
            ("tpm", scope(tpm=shadow(10))),
            ("parallel", scope(max_parallel_requests=shadow(1))),
            ("budget", scope(max_budget=shadow(10))),
        ],
        ids=["rpm", "tpm", "parallel", "budget"],
    )
    def test_refuses_nothing_and_counts_what_it_would_have_refused(
        self, callers: CallerRig, kind: str, limited: object
    ) -> None:
        for number in range(4):
            assert callers.reserve(f"r.{number}", limited, tokens=10, nanousd=10).is_reserved
        assert callers.limit_fields()[f"key:alice:would_refuse_{kind}"] == "3"
        [use] = callers.uses(limited).values()
        assert use.would_have_refused == 3

    def test_counts_what_it_would_if_it_refused(self, callers: CallerRig) -> None:
        """What it would have refused takes nothing of it, or it would refuse the next one, too."""
        quiet, loud = scope(rpm=shadow(2)), scope("key", "bob", rpm=2)
        refused = 0
        for number in range(40):
            callers.reserve(f"r.{number}", quiet)
            refused += not callers.reserve(f"s.{number}", loud).is_reserved
            callers.later(9 * SECOND)
        assert callers.uses(quiet)["key:alice rpm"].would_have_refused == refused > 0

    def test_takes_of_the_limits_that_refuse_all_the_same(self, callers: CallerRig) -> None:
        both = scope(rpm=2, tpm=shadow(10))
        for number in range(2):
            callers.reserve(f"r.{number}", both, tokens=10)
        assert callers.taken(both) == {"key:alice rpm": 2, "key:alice tpm": 10}
        assert callers.reserve("r.x", both, tokens=10).limit == "key:alice rpm"
        assert callers.uses(both)["key:alice tpm"].would_have_refused == 1

    def test_gives_back_only_what_was_taken(self, callers: CallerRig) -> None:
        quiet = scope(tpm=shadow(10))
        callers.reserve("r.1", quiet, tokens=10)
        callers.reserve("r.2", quiet, tokens=10)
        callers.settle_caller("r.2", tokens=0)
        assert callers.taken(quiet) == {"key:alice tpm": 10}

    def test_is_in_no_header(self, callers: CallerRig) -> None:
        reply = callers.reserve("r.1", scope(rpm=shadow(1), tpm=9))
        assert reply.room.requests is None
        assert reply.fits_again


class TestRoomForTheHeaders:
    def test_is_that_of_the_tightest_limit_after_the_request(self, callers: CallerRig) -> None:
        scopes = scope(rpm=9, tpm=500), scope("team", "acme", rpm=4, tpm=1000)
        reply = callers.reserve("r.1", *scopes, tokens=100)
        assert reply.room == Room(
            requests=Left(4, 3, WINDOW_MS + PART_MS), tokens=Left(500, 400, WINDOW_MS + PART_MS)
        )

    def test_of_a_refusal_is_that_before_it(self, callers: CallerRig) -> None:
        callers.reserve("r.1", EVERY, tokens=600)
        refused = callers.reserve("r.2", EVERY, tokens=600)
        assert refused.room.requests == Left(3, 2, WINDOW_MS + PART_MS)
        assert refused.room.tokens == Left(1000, 400, WINDOW_MS + PART_MS)

    def test_shrinks_with_every_request(self, callers: CallerRig) -> None:
        left = [callers.reserve(f"r.{n}", TOKENS, tokens=250).tpm_left for n in range(4)]
        assert left == [750, 500, 250, 0]

    @pytest.mark.parametrize(
        "limited",
        [
            scope(rpm=3),
            scope(tpm=39),
            scope(max_parallel_requests=3),
            scope(max_budget=30),
        ],
        ids=["rpm", "tpm", "parallel", "budget"],
    )
    def test_says_how_many_more_would_fit(self, callers: CallerRig, limited: object) -> None:
        fits = [
            callers.reserve(f"r.{n}", limited, tokens=10, nanousd=10).fits_again for n in range(4)
        ]
        assert fits == [2, 1, 0, 0]

    def test_says_no_more_than_the_least_of_all_limits(self, callers: CallerRig) -> None:
        both = scope(rpm=100_000, tpm=45), scope("team", "acme", rpm=9)
        assert callers.reserve("r.1", *both, tokens=10).fits_again == 3
        assert callers.reserve("r.2", scope("user", "bob", rpm=100_000)).fits_again == 1000


class TestClock:
    def test_a_little_behind_stands_still(self, callers: CallerRig) -> None:
        one = scope(rpm=1)
        callers.reserve("r.1", one)
        callers.later(-4 * SECOND)
        refused = callers.reserve("r.2", one)
        assert refused.retry_after_ms == WINDOW_MS + PART_MS

    def test_set_back_within_the_length_keeps_what_was_taken(self, callers: CallerRig) -> None:
        one = scope(rpm=1)
        callers.reserve("r.1", one)
        callers.later(-30 * SECOND)
        assert callers.reserve("r.2", one).status == "refused"
        callers.reserve("r.3", scope("key", "bob", rpm=1))
        assert callers.client.hget(callers.keys["limits"], "clock_steps") == "1"

    @pytest.mark.parametrize("limit", [1, fixed(1)], ids=["sliding", "fixed"])
    def test_set_back_further_than_the_length_voids_the_window(
        self, callers: CallerRig, limit: object
    ) -> None:
        one = scope(rpm=limit)
        callers.reserve("r.1", one)
        callers.later(-WINDOW_MS - PART_MS - 1)
        assert callers.reserve("r.2", one).is_reserved

    def test_set_back_further_than_the_duration_makes_a_budget_whole(
        self, callers: CallerRig
    ) -> None:
        callers.reserve("r.1", MONEY, nanousd=1000)
        callers.later(-HOUR)
        assert callers.reserve("r.2", MONEY, nanousd=1000).is_reserved


class TestWhatSomebodyHasEdited:
    @pytest.mark.parametrize(
        "nonsense",
        ["", "x", "-1", "nan", "sliding", "sliding 60000 x 1 1", "sliding 60000 850000000 1",
         "fixed 60000 1", f"sliding {WINDOW_MS} {START_MS // PART_MS} {10**30} {10**30}", "7"],
    )  # fmt: skip
    def test_is_no_window_when_it_is_nonsense(self, callers: CallerRig, nonsense: str) -> None:
        both = scope(rpm=1, tpm=100)
        callers.put_limits({"key:alice:rpm": nonsense, "key:alice:tpm": nonsense})
        assert callers.reserve("r.1", both).is_reserved
        assert callers.reserve("r.2", both).limit == "key:alice rpm"

    @pytest.mark.parametrize("nonsense", ["", "x", "-5", "nan", "1e400", "start_ms=1 spent=2"])
    def test_is_no_count_and_no_budget_when_it_is_nonsense(
        self, callers: CallerRig, nonsense: str
    ) -> None:
        both = scope(max_parallel_requests=1, max_budget=10)
        callers.put_limits({"key:alice:parallel": nonsense, "key:alice:budget": nonsense})
        assert callers.reserve("r.1", both, nanousd=10).is_reserved
        assert not callers.reserve("r.2", both, nanousd=10).is_reserved

    def test_makes_the_limit_whole_when_it_is_deleted(self, callers: CallerRig) -> None:
        one = scope(rpm=1)
        callers.reserve("r.1", one)
        callers.client.hdel(callers.keys["limits"], "key:alice:rpm")
        assert callers.reserve("r.2", one).is_reserved


class TestExpiredReservations:
    def test_give_their_place_back_to_the_next_one(self, callers: CallerRig) -> None:
        one = scope(max_parallel_requests=1)
        callers.reserve("dead.1", one)
        callers.later(LEASE_MS)
        assert callers.reserve("r.1", one).is_reserved
        assert callers.taken(one) == {"key:alice max_parallel_requests": 1}

    def test_a_few_are_ended_per_call(self, callers: CallerRig) -> None:
        many = scope(max_parallel_requests=10)
        for number in range(10):
            callers.reserve(f"dead.{number}", many)
        callers.later(LEASE_MS)
        callers.reserve("r.1", many)
        assert callers.taken(many) == {"key:alice max_parallel_requests": 7}

    def test_one_that_a_newer_release_wrote_is_postponed_by_its_lease(
        self, callers: CallerRig
    ) -> None:
        one = scope(max_parallel_requests=1)
        callers.reserve("dead.1", one)
        text = callers.held["dead.1"].replace("lease_ms=15000", "lease_ms=9000 novelty=1")
        callers.client.hset(callers.keys["reserved"], "dead.1", text)
        callers.later(LEASE_MS)
        assert callers.reserve("r.1", one).status == "refused"
        deadline = callers.client.zscore(callers.keys["reservations"], "dead.1")
        assert deadline == callers.now_ms + 9000


class TestKeysLive:
    def test_for_a_week_or_eight_days(self, callers: CallerRig) -> None:
        callers.reserve("r.1", REQUESTS)
        ttls = callers.ttls()
        assert 6 * DAY < ttls["limits"] <= 7 * DAY
        assert 7 * DAY < ttls["reservations"] <= 8 * DAY
        assert 7 * DAY < ttls["reserved"] <= 8 * DAY

    def test_for_twice_the_duration_of_a_longer_budget(self, callers: CallerRig) -> None:
        callers.reserve("r.1", scope(max_budget=9, budget_duration_ms=30 * DAY))
        assert 59 * DAY < callers.ttls()["limits"] <= 60 * DAY

    def test_no_shorter_for_a_request_with_a_shorter_budget(self, callers: CallerRig) -> None:
        callers.reserve("r.1", scope(max_budget=9, budget_duration_ms=30 * DAY))
        callers.reserve("r.2", scope("key", "bob", max_budget=9, budget_duration_ms=HOUR))
        callers.reserve("r.3", scope("key", "eve", rpm=9))
        assert callers.ttls()["limits"] > 59 * DAY

    def test_for_good_with_a_budget_that_is(self, callers: CallerRig) -> None:
        callers.reserve("r.1", scope(rpm=9))
        callers.reserve("r.2", scope("key", "bob", max_budget=9))
        callers.reserve("r.3", scope("key", "eve", max_budget=9, budget_duration_ms=HOUR))
        assert callers.ttls()["limits"] == -1

    def test_anew_when_little_is_left(self, callers: CallerRig) -> None:
        callers.reserve("r.1", REQUESTS)
        callers.client.pexpire(callers.keys["limits"], HOUR)
        callers.reserve("r.2", REQUESTS)
        assert callers.ttls()["limits"] > 6 * DAY


def test_a_lease_that_is_no_number_is_our_own_bug(callers: CallerRig) -> None:
    with pytest.raises(ResponseError):
        callers.reserve("r.1", REQUESTS, lease_ms="x")  # type: ignore[arg-type]
