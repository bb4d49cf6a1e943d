"""A replica polls: it lives, and makes good what was missed or lost."""

from __future__ import annotations

import pytest

from tests.lua.gate_rig import CONFIRM_MS, GateRig
from tests.lua.rig import DAY, LEASE_MS, SECOND


def test_it_renews_places_that_are_held(gate: GateRig) -> None:
    gate.fill("a.1", "a.2")
    gate.later(10 * SECOND)

    reply = gate.poll("a", held="a.1")

    assert (reply.granted, reply.unknown, reply.restored) == ("", "", 0)
    assert gate.held_until("a.1") == gate.now_ms + LEASE_MS
    assert gate.held_until("a.2") == gate.now_ms - 10 * SECOND + LEASE_MS


def test_it_tells_of_a_grant_that_was_missed_and_gives_time_to_confirm(gate: GateRig) -> None:
    gate.hear("b")
    gate.fill("a.1", "a.2")
    gate.line_up("b.1", "b.2")
    gate.leave("a.1")
    gate.later(CONFIRM_MS - 1)

    assert gate.poll("b", waiting="b.1 b.2").granted == "b.1"

    gate.later(CONFIRM_MS - 1)
    gate.poll("")
    assert gate.confirm("b.1").status == "held"


def test_it_tells_again_of_a_grant_whose_confirmation_got_no_answer(gate: GateRig) -> None:
    gate.hear("b")
    gate.fill("a.1", "a.2")
    gate.line_up("b.1")
    gate.leave("a.1")
    gate.confirm("b.1")

    assert gate.poll("b", waiting="b.1").granted == "b.1"
    assert gate.held_until("b.1") == gate.now_ms + LEASE_MS


def test_it_tells_each_grant_once(gate: GateRig) -> None:
    gate.fill("a.1", "a.2")
    gate.line_up("b.1", "b.2")
    gate.leave("a.1")
    gate.leave("a.2")

    assert gate.poll("b", waiting="b.1 b.2").granted.split() == ["b.1", "b.2"]


def test_it_gives_free_places_to_its_own_that_it_does_not_name(gate: GateRig) -> None:
    """More wait than one call may name."""
    gate.fill("a.1", "a.2")
    gate.line_up("b.1", "b.2")
    gate.client.delete(gate.keys["gate_holders"])

    assert gate.poll("b", waiting="b.2").granted.split() == ["b.1", "b.2"]


def test_it_names_what_does_not_stand_in_line(gate: GateRig) -> None:
    gate.fill("a.1", "a.2")
    gate.line_up("b.1")

    assert gate.poll("b", waiting="b.1 b.7").unknown == "b.7"


def test_it_puts_back_places_that_were_lost_over_the_limit_if_need_be(gate: GateRig) -> None:
    gate.fill("a.1", "a.2")
    for key in gate.keys.values():
        gate.client.delete(key)
    gate.fill("b.1", "b.2")

    assert gate.poll("a", held="a.1 a.2").restored == 2

    assert gate.holders() == ["a.1", "a.2", "b.1", "b.2"]
    assert gate.enter("b.3").status == "waiting"
    assert gate.poll("a", held="a.1 a.2").restored == 0


def test_a_place_whose_confirmation_was_lost_with_a_failover_is_held_all_the_same(
    gate: GateRig,
) -> None:
    gate.fill("a.1", "a.2")
    gate.line_up("b.1", "b.2")

    assert gate.poll("b", held="b.1").restored == 1

    assert gate.line() == ["b.2"]
    gate.later(CONFIRM_MS)
    gate.poll("")
    assert gate.holders() == ["a.1", "a.2", "b.1"]


def test_it_never_shortens_a_lease_by_telling_of_it(gate: GateRig) -> None:
    gate.fill("a.1")

    assert gate.poll("a", waiting="a.1").granted == "a.1"
    assert gate.held_until("a.1") == gate.now_ms + LEASE_MS


def test_it_keeps_all_keys_alive(gate: GateRig) -> None:
    gate.fill("a.1", "a.2")
    gate.line_up("b.1")
    for key in gate.keys.values():
        gate.client.pexpire(key, SECOND)

    gate.poll("a", held="a.1")

    assert all(ttl > 6 * DAY for ttl in gate.ttls().values())


def test_without_a_replica_it_leaves_no_key_where_there_was_none(gate: GateRig) -> None:
    gate.poll("")

    assert gate.ttls() == {}


@pytest.mark.parametrize("kind", ["gate_tickets", "gate_line", "gate_holders"])
def test_a_key_that_somebody_has_deleted_costs_no_more_than_a_number(
    gate: GateRig, kind: str
) -> None:
    # Given
    gate.hear("a", "b")
    gate.fill("a.1", "a.2")
    gate.line_up("b.1", "b.2")

    # When
    gate.client.delete(gate.keys[kind])
    replies = [gate.poll("a", held="a.1 a.2"), gate.poll("b", waiting="b.1 b.2")]
    gate.line_up(*(ticket for reply in replies for ticket in reply.unknown.split()))
    gate.leave("a.1")
    gate.leave("a.2")
    gate.poll("b", waiting="b.1 b.2")

    # Then
    held = [ticket for ticket in ("b.1", "b.2") if gate.confirm(ticket).status == "held"]
    assert held == ["b.1", "b.2"]
    assert gate.line() == []
