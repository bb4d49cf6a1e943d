"""Cooldowns: an endpoint pauses for a time, for every replica, and what the pause is decided by."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.state.keys import Keys
from tests.lua.rig import LEASE_MS, MINUTE, SECOND, START_MS, Rig
from tests.redis_servers import RedisServer, ScriptStore, script_store

PAUSE = "length_ms=30000 reason=http_429"
MOSTLY = "tally=failed length_ms=5000 reason=http_500 mostly=5"
WHOLLY = "tally=failed length_ms=5000 reason=http_500 wholly=1000"
SUCCEEDED = "tally=succeeded"
PART_MS = 2_000
"""Of the minute in which attempts are tallied: each counts whole while any of it is younger."""


@pytest.fixture
def ids() -> Iterator[str]:
    """Claims, in turn of three replicas."""
    return (f"r{n % 3}.{n}" for n in itertools.count())


def end(rig: Rig, claim: str, cooling: str, *, at: str = "a", outcome: str = "neutral") -> None:
    """A whole attempt, pinned so that no pause refuses it."""
    assert rig.admit(claim, f"{at} 1", order="pinned").is_admitted
    assert rig.settle(claim, outcome, at=at, cooling=cooling).status == "done"


def pause(rig: Rig, ms: int, *, at: str = "a", reason: str = "http_429") -> None:
    end(rig, f"pausing.{rig.now_ms}{at}{ms}", f"length_ms={ms} reason={reason}", at=at)


def left_ms(rig: Rig, at: str = "a") -> int:
    """For how long requests are kept away by a pause; 0 when they are not."""
    told = rig.explain(f"{at} 1")
    assert told.reasons in ("", f"{at}=cooldown")
    return told.retry_after_ms if told.reasons else 0


class TestAPause:
    def test_keeps_every_replica_away_until_it_ends(self, rig: Rig) -> None:
        pause(rig, 30_000)

        for replica in ("r1", "r2"):
            refused = rig.admit(f"{replica}.1")
            assert refused.passed_over() == {"a": "cooldown"}
            assert refused.retry_after_ms == 30_000
        rig.later(29_999)
        assert rig.admit("r1.2").retry_after_ms == 1
        rig.later(1)
        assert rig.admit("r1.3").is_admitted

    def test_says_until_when_and_why(self, rig: Rig) -> None:
        pause(rig, 30_000, reason="error_frame_429")

        until_ms = rig.now_ms + 30_000
        expected = f"until_ms={until_ms} length_ms=30000 reason=error_frame_429"
        assert rig.field("a:cooldown") == expected

    def test_sends_requests_to_others(self, rig: Rig) -> None:
        pause(rig, 30_000)

        admitted = rig.admit("r.1", "a 1 b 1")
        assert (admitted.location, admitted.passed_over()) == ("b", {"a": "cooldown"})

    def test_of_all_is_told_by_the_one_that_ends_first(self, rig: Rig) -> None:
        pause(rig, 5_000, at="a")
        pause(rig, 60_000, at="b")
        rig.later(1_999)

        refused = rig.admit("r.1", "a 1 b 1")
        assert refused.passed_over() == {"a": "cooldown", "b": "cooldown"}
        assert refused.retry_after_ms == 3_001

    def test_is_passed_over_by_an_operators_request(self, rig: Rig) -> None:
        pause(rig, 30_000)

        assert rig.admit("r.1", order="pinned").location == "a"

    @pytest.mark.parametrize("outcome", ["success", "failure", "neutral"])
    def test_lasts_its_time_whatever_comes_of_attempts_meanwhile(
        self, rig: Rig, outcome: str
    ) -> None:
        pause(rig, 30_000)
        rig.later(1_000)
        end(rig, "r.1", "", outcome=outcome)

        assert left_ms(rig) == 29_000

    @pytest.mark.parametrize(
        ("second_ms", "expected_ms"),
        [(1, 20_000), (19_999, 20_000), (20_000, 20_000), (20_001, 20_001), (30_000, 30_000)],
    )
    def test_gives_way_to_one_that_ends_later_alone(
        self, rig: Rig, second_ms: int, expected_ms: int
    ) -> None:
        pause(rig, 25_000, reason="first")
        rig.later(5_000)
        pause(rig, second_ms, reason="second")

        assert left_ms(rig) == expected_ms
        assert rig.field("a:cooldown").endswith("first" if expected_ms == 20_000 else "second")

    def test_that_has_ended_gives_way_to_a_shorter_one(self, rig: Rig) -> None:
        pause(rig, 30_000)
        rig.later(30_000)
        pause(rig, 1_000)

        assert left_ms(rig) == 1_000

    def test_comes_beside_an_open_circuit(self, rig: Rig) -> None:
        pause(rig, 40_000)
        rig.open_circuit()

        assert rig.admit("r.1").passed_over() == {"a": "circuit_open"}
        rig.later(30_000)
        assert rig.admit("r.2").passed_over() == {"a": "cooldown"}
        assert rig.field("a:circuit") == "open", "the trial is taken after the pause"
        rig.later(10_000)
        assert rig.admit("r.3").probe == 1

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "nonsense",
            "until_ms=x length_ms=5000 reason=r",
            "until_ms={soon} length_ms= reason=r",
            "until_ms={soon} length_ms=1000",
            "until_ms={soon} length_ms=4999 reason=r",
            "until_ms=99999999999999999999 length_ms=99999999999999999999 reason=r",
        ],
    )
    def test_edited_by_hand_to_nonsense_is_none(self, rig: Rig, text: str) -> None:
        rig.put({"a:cooldown": text.format(soon=rig.now_ms + 5_000)})

        assert rig.admit("r.1").is_admitted
        pause(rig, 1_000)
        assert left_ms(rig) == 1_000

    def test_may_be_made_and_ended_by_hand(self, rig: Rig) -> None:
        until_ms = rig.now_ms + 5_000
        rig.put({"a:cooldown": f"until_ms={until_ms} length_ms=5000 reason=maintenance"})
        assert left_ms(rig) == 5_000

        rig.client.hdel(rig.keys["endpoints"], "a:cooldown")
        assert left_ms(rig) == 0

    @pytest.mark.parametrize("back_ms", [1, 4_999])
    def test_is_not_lengthened_by_a_clock_a_little_behind(self, rig: Rig, back_ms: int) -> None:
        pause(rig, 30_000)
        rig.later(-back_ms)

        assert left_ms(rig) == 30_000

    def test_is_void_where_a_clock_set_back_makes_it_longer_than_it_is(self, rig: Rig) -> None:
        pause(rig, 30_000)
        rig.later(-MINUTE)

        assert left_ms(rig) == 0

    def test_of_a_clock_set_back_gives_way_to_any_other(self, rig: Rig) -> None:
        pause(rig, 30_000)
        rig.later(-MINUTE)
        pause(rig, 1_000)

        assert left_ms(rig) == 1_000


class TestTheEndOfAClaim:
    @pytest.mark.parametrize("cooling", [PAUSE, MOSTLY, SUCCEEDED, f"{PAUSE} count=any allowed=9"])
    def test_that_is_told_again_changes_nothing(self, rig: Rig, cooling: str) -> None:
        rig.admit("r.1")
        rig.settle("r.1", "neutral", cooling=cooling)
        before = rig.state()

        assert rig.settle("r.1", "neutral", cooling=cooling).status == "gone"
        assert rig.state() == before

    def test_that_is_told_late_still_pauses_once(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.later(LEASE_MS)
        assert rig.reap() == 1

        assert rig.settle("r.1", "neutral", cooling=PAUSE).status == "late"
        assert left_ms(rig) == 30_000
        rig.later(1_000)
        assert rig.settle("r.1", "neutral", cooling=PAUSE).status == "gone"
        assert left_ms(rig) == 29_000

    @pytest.mark.parametrize("had_output", [False, True])
    def test_is_tallied_once_with_its_first_output_or_without(
        self, rig: Rig, had_output: bool
    ) -> None:
        rig.admit("r.1")
        if had_output:
            rig.first_token("r.1")
            assert rig.field("a:succeeded") is None, "how it ends is not known yet"
        rig.settle("r.1", "success", cooling=SUCCEEDED)

        assert tallied(rig, "succeeded") == 1

    def test_costs_nothing_where_nothing_is_said(self, rig: Rig) -> None:
        end(rig, "r.1", "", outcome="success")
        end(rig, "r.2", "", outcome="neutral")

        assert rig.fields() == {}


def tallied(rig: Rig, what: str, at: str = "a") -> int:
    """How many a window holds, as it was written."""
    text = rig.field(f"{at}:{what}")
    return int(text.split()[3]) if text else 0


class TestMostAttempts:
    @pytest.mark.parametrize(
        ("failed", "succeeded", "pauses"),
        [
            (4, 0, False),
            (5, 0, True),
            (3, 2, True),
            (2, 3, False),
            (5, 5, False),
            (5, 4, True),
            (4, 3, True),
            (3, 3, False),
            (600, 599, True),
            (600, 600, False),
        ],
    )
    def test_must_have_failed_of_five_or_more(
        self, rig: Rig, ids: Iterator[str], failed: int, succeeded: int, pauses: bool
    ) -> None:
        if succeeded > 1:
            put_tally(rig, "succeeded", succeeded - 1)
        if succeeded:
            end(rig, next(ids), SUCCEEDED, outcome="success")
        if failed > 9:
            put_tally(rig, "failed", failed - 9)
        for _ in range(min(failed, 9)):
            assert left_ms(rig) == 0
            end(rig, next(ids), MOSTLY)

        assert (left_ms(rig) > 0) == pauses
        assert (tallied(rig, "failed"), tallied(rig, "succeeded")) == (failed, succeeded)

    def test_are_those_of_all_replicas(self, rig: Rig) -> None:
        for claim in ("one.1", "one.2", "one.3", "two.1"):
            end(rig, claim, MOSTLY)
        assert left_ms(rig) == 0

        end(rig, "two.2", MOSTLY)
        assert left_ms(rig) == 5_000

    def test_are_those_of_one_endpoint(self, rig: Rig, ids: Iterator[str]) -> None:
        for at in "abababab":
            end(rig, next(ids), MOSTLY, at=at)

        assert (left_ms(rig, "a"), left_ms(rig, "b")) == (0, 0)

    @pytest.mark.parametrize(
        ("later_ms", "pauses"), [(MINUTE, True), (MINUTE + PART_MS, False)], ids=["young", "old"]
    )
    def test_are_those_of_the_last_minute(
        self, rig: Rig, ids: Iterator[str], later_ms: int, pauses: bool
    ) -> None:
        for _ in range(4):
            end(rig, next(ids), MOSTLY)
        rig.later(later_ms)
        end(rig, next(ids), MOSTLY)

        assert (left_ms(rig) > 0) == pauses

    def test_are_counted_after_a_clock_was_set_back_too(self, rig: Rig, ids: Iterator[str]) -> None:
        for _ in range(4):
            end(rig, next(ids), MOSTLY)
        rig.later(-10 * MINUTE)
        for _ in range(4):
            end(rig, next(ids), MOSTLY)
            assert left_ms(rig) == 0

        end(rig, next(ids), MOSTLY)
        assert left_ms(rig) == 5_000

    def test_include_those_that_pause_at_once_or_not_at_all(
        self, rig: Rig, ids: Iterator[str]
    ) -> None:
        for cooling in ("tally=failed length_ms=1000 reason=r", "tally=failed", MOSTLY, MOSTLY):
            end(rig, next(ids), cooling)
        rig.later(1_000)
        assert left_ms(rig) == 0

        end(rig, next(ids), MOSTLY)
        assert left_ms(rig) == 5_000

    @pytest.mark.parametrize("text", ["", "nonsense", "sliding 60000 1 -5 9", "fixed 60000 1 99"])
    def test_edited_by_hand_to_nonsense_are_none(
        self, rig: Rig, ids: Iterator[str], text: str
    ) -> None:
        rig.put({"a:succeeded": text, "a:failed": text})
        end(rig, next(ids), MOSTLY)

        assert left_ms(rig) == 0
        assert tallied(rig, "failed") == 1


def put_tally(rig: Rig, what: str, count: int) -> None:
    """Have so many attempts tallied, by hand, just now."""
    part = rig.now_ms // PART_MS
    rig.put({f"a:{what}": f"sliding 60000 {part} {count} {count}"})


class TestTheOnlyEndpoint:
    @pytest.mark.parametrize(
        ("failed", "succeeded", "pauses"),
        [(999, 0, False), (1000, 0, True), (1001, 0, True), (5000, 1, False)],
    )
    def test_pauses_when_all_of_a_thousand_have_failed(
        self, rig: Rig, ids: Iterator[str], failed: int, succeeded: int, pauses: bool
    ) -> None:
        if succeeded:
            put_tally(rig, "succeeded", succeeded)
        put_tally(rig, "failed", failed - 1)
        end(rig, next(ids), WHOLLY)

        assert (left_ms(rig) > 0) == pauses


class TestAllowedFails:
    def fail(self, rig: Rig, ids: Iterator[str], count: str, allowed: int) -> None:
        words = f"length_ms=20000 reason=r count={count} allowed={allowed} within_ms=10000"
        end(rig, next(ids), words)

    @pytest.mark.parametrize("allowed", [0, 1, 3])
    def test_are_no_reason_and_the_next_one_is(
        self, rig: Rig, ids: Iterator[str], allowed: int
    ) -> None:
        for _ in range(allowed):
            self.fail(rig, ids, "any", allowed)
            assert left_ms(rig) == 0

        self.fail(rig, ids, "any", allowed)
        assert left_ms(rig) == 20_000

    def test_are_counted_by_class(self, rig: Rig, ids: Iterator[str]) -> None:
        self.fail(rig, ids, "rate_limit", 1)
        self.fail(rig, ids, "timeout", 1)
        self.fail(rig, ids, "any", 1)
        assert left_ms(rig) == 0

        self.fail(rig, ids, "timeout", 1)
        assert left_ms(rig) == 20_000

    @pytest.mark.parametrize(("later_ms", "pauses"), [(10_000, True), (10_400, False)])
    def test_are_counted_for_their_time(
        self, rig: Rig, ids: Iterator[str], later_ms: int, pauses: bool
    ) -> None:
        self.fail(rig, ids, "any", 1)
        rig.later(later_ms)
        self.fail(rig, ids, "any", 1)

        assert (left_ms(rig) > 0) == pauses

    def test_are_counted_anew_within_another_time(self, rig: Rig, ids: Iterator[str]) -> None:
        self.fail(rig, ids, "any", 1)
        end(rig, next(ids), "length_ms=1 reason=r count=any allowed=1 within_ms=9999")

        assert left_ms(rig) == 0


class TestAReset:
    def test_ends_a_pause_and_forgets_what_led_to_it(self, rig: Rig, ids: Iterator[str]) -> None:
        untouched = {
            "ab:cooldown": "x",
            "ab:failed": "x",
            "ab:fails_any": "x",
            "b:fails_any": "x",
        }
        rig.put(untouched)
        for cooling in (PAUSE, MOSTLY, SUCCEEDED):
            end(rig, next(ids), cooling)
        for count in ("any", "rate_limit"):
            end(rig, next(ids), f"{PAUSE} count={count} allowed=0 within_ms=1000")
        assert left_ms(rig) == 30_000

        rig.run("reset_circuit", location="a")

        assert rig.fields() == untouched
        assert left_ms(rig) == 0


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 500, PART_MS, 5 * SECOND, 20 * SECOND, MINUTE]),
        st.sampled_from([SUCCEEDED, MOSTLY, MOSTLY, "tally=failed", PAUSE]),
    ),
    min_size=1,
    max_size=40,
)


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[ScriptStore]:
    with script_store(redis_server) as store:
        yield store


def test_any_sequence_of_ends_pauses_as_the_rules_say(store: ScriptStore, keys: Keys) -> None:
    numbers = itertools.count()

    @settings(
        max_examples=80,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(events=EVENTS)
    def run(events: list[tuple[int, str]]) -> None:
        rig = Rig(store, keys, f"run-{next(numbers)}")
        found = []
        for number, (ms, cooling) in enumerate(events):
            rig.later(ms)
            end(rig, f"r.{number}", cooling)
            found.append(left_ms(rig))
        store.client.delete(*rig.model_keys)
        assert found == list(reference(events))

    run()


def reference(events: Iterable[tuple[int, str]]) -> Iterator[int]:
    """What is left of the pause after each of the events, by summing up over all of them."""
    now, until, ends = START_MS, 0, []
    for ms, cooling in events:
        now += ms
        words = dict(word.split("=") for word in cooling.split())
        ends.append((now // PART_MS, words.get("tally")))
        lately = [tally for part, tally in ends if part >= now // PART_MS - 30]
        failed, succeeded = lately.count("failed"), lately.count("succeeded")
        pauses = "length_ms" in words
        if "mostly" in words:
            pauses = failed + succeeded >= 5 and failed / (failed + succeeded) > 0.5
        if pauses:
            until = max(until, now + int(words["length_ms"]))
        yield max(until - now, 0)
