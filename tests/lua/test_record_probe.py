"""record_probe: failed health probes open a circuit and a passed one closes it."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from tests.lua.rig import START_MS, Rig

EPOCH = 2_000_000_000
COOLDOWN_MS = 30_000


def probe(
    rig: Rig, outcome: str, *, at: str = "a", live: int = 2, epoch: int = EPOCH
) -> tuple[str, str]:
    status, circuit = rig.run(
        "record_probe",
        epoch=epoch,
        prober="c1",
        location=at,
        outcome=outcome,
        live_replicas=live,
        rules=rig.policy.to_record,
    )
    return status, circuit


def test_failed_opens_the_circuit_at_once(rig: Rig) -> None:
    assert probe(rig, "failed") == ("done", "opened")
    assert rig.field("a:opened_at_ms") == str(START_MS)
    assert rig.admit("r.1").passed_over() == {"a": "circuit_open"}


def test_failed_again_restarts_the_cooldown(rig: Rig) -> None:
    probe(rig, "failed")
    rig.later(COOLDOWN_MS - 1)

    assert probe(rig, "failed") == ("done", "")
    rig.later(COOLDOWN_MS - 1)
    assert rig.admit("r.1").passed_over() == {"a": "circuit_open"}
    rig.later(1)
    assert rig.admit("r.1").probe


def test_failed_counts_as_often_as_it_takes_and_then_once(rig: Rig) -> None:
    probe(rig, "failed")
    assert rig.field("a:failures") == str(rig.policy.failure_threshold)

    probe(rig, "failed")
    assert rig.field("a:failures") == str(rig.policy.failure_threshold + 1)


def test_passed_closes_the_circuit_whoever_opened_it(rig: Rig) -> None:
    rig.open_circuit()

    assert probe(rig, "passed") == ("done", "closed")
    assert rig.admit("r.1").location == "a"


def test_passed_closes_a_half_open_circuit_and_the_trial_under_way_ends_as_it_ends(
    rig: Rig,
) -> None:
    rig.open_circuit()
    rig.later(COOLDOWN_MS)
    rig.admit("r.1")

    assert probe(rig, "passed") == ("done", "closed")
    assert rig.settle("r.1").status == "done"
    assert rig.field("a:circuit") is None


def test_passed_where_no_circuit_is_open_says_nothing_of_requests(rig: Rig) -> None:
    rig.attempt("r.1", "failure")
    before = rig.state()

    assert probe(rig, "passed") == ("done", "")
    assert rig.state() == before


def test_other_endpoints_are_left_alone(rig: Rig) -> None:
    rig.open_circuit("b")

    probe(rig, "failed")
    probe(rig, "passed")

    assert rig.field("b:circuit") == "open"


class TestNoConnection:
    def test_is_one_witness_and_opens_nothing(self, rig: Rig) -> None:
        for _ in range(5):
            assert probe(rig, "connect") == ("done", "")
        assert rig.admit("r.1").location == "a"

    def test_opens_with_a_replica_that_cannot_connect_either(self, rig: Rig) -> None:
        for _ in range(rig.policy.failure_threshold):
            probe(rig, "connect")

        assert rig.attempt("r.1", "connect").circuit == "opened"

    def test_opens_where_a_replica_could_not_connect_before(self, rig: Rig) -> None:
        rig.attempt("r.1", "connect")
        rig.attempt("r.2", "connect")

        assert probe(rig, "connect") == ("done", "opened")

    def test_opens_where_there_is_no_other_witness(self, rig: Rig) -> None:
        found = [probe(rig, "connect", live=1)[1] for _ in range(rig.policy.failure_threshold)]

        assert found == ["", "", "opened"]

    def test_is_forgotten_with_a_passed_probe(self, rig: Rig) -> None:
        probe(rig, "connect")

        probe(rig, "passed")

        assert rig.field("a:conn") is None


@pytest.mark.parametrize("outcome", ["passed", "failed", "connect"])
def test_older_leader_changes_nothing(rig: Rig, outcome: str) -> None:
    rig.open_circuit()
    rig.put({"fence": EPOCH + 1})
    before = rig.state()

    assert probe(rig, outcome) == ("fenced", "")
    assert rig.state() == before
    assert probe(rig, outcome, epoch=EPOCH + 1)[0] == "done"


@pytest.mark.parametrize("outcome", ["passed", "failed", "connect"])
def test_newer_leader_keeps_older_ones_out_with_the_first_that_it_writes(
    rig: Rig, outcome: str
) -> None:
    rig.open_circuit()
    probe(rig, outcome, epoch=EPOCH + 1)
    before = rig.state()

    assert probe(rig, "passed") == probe(rig, "failed") == ("fenced", "")
    assert rig.state() == before


def test_another_outcome_is_a_bug(rig: Rig) -> None:
    with pytest.raises(ResponseError, match="BADARG outcome"):
        probe(rig, "neutral")
