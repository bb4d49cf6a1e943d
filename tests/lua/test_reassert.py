"""reassert: a record that was lost while its attempt runs is put back, once."""

from __future__ import annotations

import pytest

from tests.lua.rig import LEASE_MS, Rig


def test_into_an_empty_model_counts_the_claim(rig: Rig) -> None:
    assert rig.reassert("r.1") == "done"

    assert rig.field("a:inflight") == "1"
    assert rig.holding("r.1") == f"location=a lease_ms={LEASE_MS}"
    assert rig.deadline("r.1") == rig.now_ms + LEASE_MS
    assert all(ttl > 0 for ttl in rig.ttls().values())


def test_repeated_changes_nothing(rig: Rig) -> None:
    rig.reassert("r.1")
    before = rig.state()

    assert rig.reassert("r.1") == "again"

    assert rig.state() == before


def test_of_a_claim_that_stands_changes_nothing(rig: Rig) -> None:
    rig.admit("r.1")
    before = rig.state()

    assert rig.reassert("r.1") == "again"
    assert rig.state() == before


def test_is_never_refused_though_the_circuit_is_open(rig: Rig) -> None:
    rig.open_circuit()

    assert rig.reassert("r.1") == "done"
    assert rig.field("a:circuit") == "open"


def test_takes_no_probe(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(30_000)
    rig.reassert("r.1")

    assert rig.admit("r.2").probe == 1


def test_settles_like_any_other_claim(rig: Rig) -> None:
    rig.reassert("r.1")

    assert rig.settle("r.1", "success").status == "done"
    assert rig.fields() == {}


@pytest.mark.parametrize(("first", "answer"), [(0, "done"), (1, "again")])
def test_says_whether_the_first_token_had_come(rig: Rig, first: int, answer: str) -> None:
    rig.reassert("r.1", first=first)

    assert rig.first_token("r.1").status == answer


@pytest.mark.parametrize("first", [False, True])
def test_of_a_reaped_claim_takes_its_tombstone_away(rig: Rig, first: bool) -> None:
    rig.admit("r.1")
    if first:
        rig.first_token("r.1")
    rig.later(LEASE_MS)
    rig.reap()

    assert rig.reassert("r.1") == "done"

    assert rig.settle("r.1", "failure").status == "done"
    assert rig.settle("r.1", "failure").status == "gone"
    assert rig.field("a:failures") == "1"


@pytest.mark.parametrize("lost", ["claims", "claimed"])
def test_half_a_record_is_completed_and_its_place_is_counted_once(rig: Rig, lost: str) -> None:
    rig.admit("r.1")
    rig.client.delete(rig.keys[lost])

    assert rig.reassert("r.1") == "done"

    assert rig.field("a:inflight") == "1"
    assert rig.renew("r.1") == []


def test_after_every_key_was_lost_all_counts_come_back(rig: Rig) -> None:
    claims = [f"r.{i}" for i in range(5)]
    for claim in claims:
        rig.admit(claim)
    rig.client.delete(*rig.model_keys)

    for claim in rig.renew(*claims):
        rig.reassert(claim)

    assert rig.field("a:inflight") == "5"


@pytest.mark.parametrize("count", ["", "x", "-5", "nan"])
def test_edited_count_starts_from_nothing(rig: Rig, count: str) -> None:
    rig.put({"a:inflight": count})
    rig.reassert("r.1")

    assert rig.field("a:inflight") == "1"
