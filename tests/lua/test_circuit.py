"""Circuits, from attempt to attempt: what opens one, what closes it, who may probe."""

from __future__ import annotations

import pytest

from gateway.state.store import Policy
from tests.lua.rig import Rig

COOLDOWN_MS = 30_000
NUMBER = {"F": "failure", "S": "success", "N": "neutral"}


def availability(rig: Rig, at: str = "a") -> float:
    return float(rig.field(f"{at}:availability") or 1)


def play(rig: Rig, outcomes: str) -> list[str]:
    """Attempt after attempt; returns what each did to the circuit."""
    start = int(rig.now_ms)
    return [
        rig.attempt(f"play{start}.{i}", NUMBER[letter]).circuit for i, letter in enumerate(outcomes)
    ]


@pytest.mark.parametrize(
    ("outcomes", "value"),
    [("F", 0.9), ("FF", 0.81), ("FFF", 0.729), ("FFFF", 0.6561), ("FFFS", 0.7561), ("S", 1.0)],
)
def test_availability_is_the_weighted_mean_of_outcomes(
    rig: Rig, outcomes: str, value: float
) -> None:
    play(rig, outcomes)

    assert availability(rig) == pytest.approx(value, abs=1e-12)


def test_one_failure_below_the_threshold_keeps_the_circuit_closed(rig: Rig) -> None:
    assert play(rig, "FF") == ["", ""]
    assert rig.field("a:failures") == "2"
    assert rig.admit("r.1").is_admitted


def test_circuit_opens_at_the_threshold(rig: Rig) -> None:
    assert play(rig, "FFF") == ["", "", "opened"]
    assert rig.admit("r.1").passed_over() == {"a": "circuit_open"}


def test_success_in_between_starts_the_count_again(rig: Rig) -> None:
    play(rig, "FFS")

    assert rig.field("a:failures") is None
    assert rig.field("a:circuit") is None


def test_alternating_outcomes_open_it_below_the_floor_on_the_fifth_failure(rig: Rig) -> None:
    assert play(rig, "FSFSFSFSF") == [""] * 8 + ["opened"]
    assert availability(rig) == pytest.approx(0.6572, abs=1e-4)
    assert rig.field("a:failures") == "1"


def test_one_failure_after_recovery_opens_it_again(rig: Rig) -> None:
    play(rig, "FFF")
    rig.later(COOLDOWN_MS)

    assert play(rig, "SF") == ["closed", "opened"]
    assert availability(rig) == pytest.approx(0.68049, abs=1e-9)


def test_two_successes_after_recovery_survive_a_failure(rig: Rig) -> None:
    play(rig, "FFF")
    rig.later(COOLDOWN_MS)

    assert play(rig, "SSF") == ["closed", "", ""]


@pytest.mark.parametrize(("floor", "circuit"), [(0.9, ""), (0.9000001, "opened")])
def test_floor_itself_is_still_available(rig: Rig, floor: float, circuit: str) -> None:
    rig.policy = Policy(min_availability=floor)

    assert play(rig, "F") == [circuit]


def test_an_open_circuit_still_says_open_when_its_cooldown_is_over(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(COOLDOWN_MS)

    assert rig.admit("r.1", "b 1").location == "b"
    assert rig.field("a:circuit") == "open"


def test_looking_takes_no_probe(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(COOLDOWN_MS)
    for i in range(20):
        assert not rig.admit(f"look.{i}", "a 1", tried="a").is_admitted

    assert rig.admit("r.1").probe == 1


def test_one_of_many_who_ask_at_once_gets_the_probe(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(COOLDOWN_MS)

    replies = [rig.admit(f"r{i}.1") for i in range(8)]

    assert sum(reply.is_admitted for reply in replies) == 1
    assert rig.field("a:circuit") == "half_open"


class TestAProbe:
    @pytest.fixture(autouse=True)
    def probe(self, rig: Rig) -> None:
        """Claim `probe.1` has it."""
        rig.open_circuit()
        rig.later(COOLDOWN_MS)
        assert rig.admit("probe.1").probe == 1

    def test_that_succeeds_closes_the_circuit_for_all(self, rig: Rig) -> None:
        assert rig.settle("probe.1", "success").circuit == "closed"
        assert all(rig.admit(f"r.{i}").is_admitted for i in range(10))

    def test_whose_first_token_comes_closes_the_circuit_at_once(self, rig: Rig) -> None:
        assert rig.first_token("probe.1").circuit == "closed"
        assert rig.admit("r.1").is_admitted

    @pytest.mark.parametrize("how", ["its own", "another's"])
    def test_is_over_with_any_success(self, rig: Rig, how: str) -> None:
        if how == "its own":
            rig.first_token("probe.1")
        else:
            rig.attempt("other.1", "success")

        left = {name for name in rig.fields() if "probe" in name or "opened" in name}
        assert left == set()

    def test_that_fails_opens_it_again_and_restarts_the_cooldown(self, rig: Rig) -> None:
        rig.later(5_000)
        assert rig.settle("probe.1", "failure").circuit == "opened"

        rig.later(COOLDOWN_MS - 1)
        assert rig.admit("r.1").passed_over() == {"a": "circuit_open"}
        rig.later(1)
        assert rig.admit("r.1").probe == 1

    def test_that_says_nothing_frees_its_place_at_once(self, rig: Rig) -> None:
        assert rig.settle("probe.1", "neutral").circuit == ""
        assert rig.field("a:circuit") == "half_open"
        assert rig.admit("r.1").probe == 1

    def renew_for(self, rig: Rig, ms: int) -> None:
        """Its holder lives, and says so."""
        for step in (ms // 3, ms // 3, ms - 2 * (ms // 3)):
            rig.later(step)
            assert rig.renew("probe.1") == []

    def test_that_never_ends_keeps_its_place_for_one_cooldown(self, rig: Rig) -> None:
        self.renew_for(rig, COOLDOWN_MS - 1)

        assert rig.admit("r.1").passed_over() == {"a": "probe_in_flight"}

    def test_that_never_ends_is_succeeded_after_one_cooldown(self, rig: Rig) -> None:
        self.renew_for(rig, COOLDOWN_MS)

        assert rig.admit("r.1").probe == 1

    def test_that_ends_late_does_not_free_its_successors_place(self, rig: Rig) -> None:
        self.renew_for(rig, COOLDOWN_MS)
        rig.admit("successor.1")

        rig.settle("probe.1", "neutral")

        assert rig.admit("r.1").passed_over() == {"a": "probe_in_flight"}

    @pytest.mark.parametrize("outcome", ["neutral", "failure"])
    def test_keeps_its_place_whatever_others_record(self, rig: Rig, outcome: str) -> None:
        rig.attempt("other.1", outcome)

        assert rig.field("a:probe") == "probe.1"

    def test_leaves_other_endpoints_to_the_rest(self, rig: Rig) -> None:
        assert rig.admit("r.1", "a 1 b 1").location == "b"


def test_late_failure_restarts_the_cooldown_of_an_open_circuit(rig: Rig) -> None:
    rig.admit("slow.1")
    rig.renew("slow.1", lease_ms=60_000)
    rig.open_circuit()
    rig.later(20_000)

    assert rig.settle("slow.1", "failure").circuit == "", "it was open already"

    rig.later(COOLDOWN_MS - 1)
    assert not rig.admit("r.1").is_admitted
    rig.later(1)
    assert rig.admit("r.1").is_admitted


def test_success_of_a_request_from_before_the_trip_closes_the_circuit(rig: Rig) -> None:
    rig.admit("slow.1")
    rig.open_circuit()

    assert rig.settle("slow.1", "success").circuit == "closed"
    assert rig.admit("r.1").probe == 0
    assert availability(rig) == pytest.approx(0.7561), "the mean is not reset"


def test_cooldown_of_zero_admits_everything(rig: Rig) -> None:
    rig.policy = Policy(cooldown_ms=0)
    rig.open_circuit()

    assert all(rig.admit(f"r.{i}").is_admitted for i in range(5))


def test_exempt_outcomes_count_nothing(rig: Rig) -> None:
    for i in range(20):
        rig.attempt(f"r.{i}", "neutral", status=400)

    assert rig.fields() == {}


class TestRejectedCredentials:
    def test_are_failures_counted_apart(self, rig: Rig) -> None:
        rig.attempt("r.1", "auth", status=401)

        assert rig.field("a:auth_rejections") == "1"
        assert rig.field("a:last_status") == "401"
        assert availability(rig) == 0.9
        assert rig.field("a:circuit") is None

    def test_open_the_circuit_at_the_threshold(self, rig: Rig) -> None:
        turns = [rig.attempt(f"r.{i}", "auth", status=401).circuit for i in range(3)]

        assert turns == ["", "", "opened"]
        assert rig.field("a:auth_rejections") == "3"

    def test_are_cleared_by_success_alone_and_the_last_status_stays(self, rig: Rig) -> None:
        rig.attempt("r.1", "auth", status=401)
        rig.attempt("r.2", "success")

        assert rig.field("a:auth_rejections") is None
        assert rig.field("a:last_status") == "401"

    def test_are_neither_cleared_nor_extended_by_other_failures(self, rig: Rig) -> None:
        rig.attempt("r.1", "auth", status=401)
        rig.attempt("r.2", "failure", status=502)

        assert rig.field("a:auth_rejections") == "1"
        assert rig.field("a:last_status") == "502"

    def test_are_counted_although_the_count_was_edited(self, rig: Rig) -> None:
        rig.put({"a:auth_rejections": "many"})

        assert rig.attempt("r.1", "auth", status=401).status == "done"
        assert rig.field("a:auth_rejections") == "1"


def test_failure_without_a_status_leaves_the_last_one(rig: Rig) -> None:
    rig.attempt("r.1", "failure", status=503)
    rig.attempt("r.2", "failure", status=0)

    assert rig.field("a:last_status") == "503"


@pytest.mark.parametrize("nonsense", ["", "x", "-5", "7", "nan", "-nan", "inf", "-inf"])
@pytest.mark.parametrize("outcome", ["success", "failure"])
def test_edited_availability_stays_between_nothing_and_one(
    rig: Rig, outcome: str, nonsense: str
) -> None:
    rig.put({"a:availability": nonsense, "a:failures": nonsense})

    rig.attempt("r.1", outcome)

    assert 0 <= availability(rig) <= 1
    assert int(rig.field("a:failures") or 0) >= 0


def test_healthy_endpoint_leaves_no_trace_in_the_end_but_its_generation(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(COOLDOWN_MS)
    for i in range(200):
        rig.attempt(f"r.{i}", "success")

    assert rig.fields() == {"a:generation": "3"}, "hints from before the failures stay void"
