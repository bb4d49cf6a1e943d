"""first_token: an attempt's first output is its success, once."""

from __future__ import annotations

import pytest

from tests.lua.rig import LEASE_MS, Rig


def test_of_an_unknown_claim_answers_gone_and_writes_nothing(rig: Rig) -> None:
    before = rig.state()

    assert rig.first_token("r.1").status == "gone"

    assert rig.state() == before
    assert rig.ttls() == {}


def test_is_a_success(rig: Rig) -> None:
    rig.attempt("r.0", "failure")
    rig.admit("r.1")

    assert rig.first_token("r.1").status == "done"

    assert rig.field("a:failures") is None
    assert float(rig.field("a:availability") or 0) == pytest.approx(0.91)
    assert rig.holding("r.1") == f"location=a lease_ms={LEASE_MS} first=1"


def test_repeated_changes_nothing(rig: Rig) -> None:
    rig.attempt("r.0", "failure")
    rig.admit("r.1")
    rig.first_token("r.1")
    before = rig.state()

    assert rig.first_token("r.1").status == "again"

    assert rig.state() == before


def test_of_an_ended_claim_answers_gone(rig: Rig) -> None:
    rig.admit("r.1")
    rig.settle("r.1", "failure")
    before = rig.state()

    assert rig.first_token("r.1").status == "gone"
    assert rig.state() == before


def test_of_a_reaped_claim_answers_gone(rig: Rig) -> None:
    rig.admit("r.1")
    rig.later(LEASE_MS)
    rig.reap()

    assert rig.first_token("r.1").status == "gone"


def test_leaves_the_place_in_flight_and_the_lease(rig: Rig) -> None:
    rig.admit("r.1")
    deadline = rig.deadline("r.1")

    rig.first_token("r.1")

    assert rig.field("a:inflight") == "1"
    assert rig.deadline("r.1") == deadline


def test_closes_a_circuit_that_opened_while_it_was_on_its_way(rig: Rig) -> None:
    rig.admit("r.1")
    rig.open_circuit()

    assert rig.first_token("r.1").circuit == "closed"
    assert rig.field("a:circuit") is None


def test_every_key_still_dies(rig: Rig) -> None:
    rig.admit("r.1")
    rig.first_token("r.1")

    assert all(ttl > 0 for ttl in rig.ttls().values())


@pytest.mark.parametrize("text", ["nonsense", "lease_ms=5", "location=a newer=1"])
def test_holding_that_cannot_be_read_is_left_alone(rig: Rig, text: str) -> None:
    rig.admit("r.1")
    rig.client.hset(rig.keys["claimed"], "r.1", text)

    assert rig.first_token("r.1").status == "gone"
    assert rig.holding("r.1") == text


def test_holding_without_its_lease_is_enough(rig: Rig) -> None:
    rig.admit("r.1")
    rig.client.hset(rig.keys["claimed"], "r.1", "location=a")

    assert rig.first_token("r.1").status == "done"
    assert rig.holding("r.1") == "location=a first=1"


def test_deleted_endpoints_stay_deleted(rig: Rig) -> None:
    rig.admit("r.1")
    rig.client.delete(rig.keys["endpoints"])

    assert rig.first_token("r.1").status == "done"
    assert "endpoints" not in rig.ttls()
