"""A gate that no route leads to is forgotten, unless somebody is there."""

from __future__ import annotations

from tests.lua.gate_rig import GateRig
from tests.lua.rig import LEASE_MS


def test_nothing_is_left_of_a_gate_with_nobody_in_it(gate: GateRig) -> None:
    gate.answered(429)
    gate.client.hset(gate.keys["gate_tickets"], "dead.1", "lease_ms=15000")
    gate.client.sadd(gate.keys["gate_frozen"], "dead")

    assert gate.forget() == "done"

    assert gate.ttls() == {}


def test_a_gate_that_was_never_there_is_forgotten(gate: GateRig) -> None:
    assert gate.forget() == "done"
    assert gate.ttls() == {}


def test_a_gate_stays_while_somebody_is_in_it(gate: GateRig) -> None:
    gate.fill("a.1")
    before = gate.state()

    assert gate.forget() == "in_use"
    assert gate.state() == before


def test_a_gate_stays_while_somebody_is_in_line(gate: GateRig) -> None:
    gate.fill("a.1", "a.2")
    gate.line_up("b.1")
    gate.client.delete(gate.keys["gate_holders"])
    before = gate.state()

    assert gate.forget() == "in_use"
    assert gate.state() == before


def test_a_gate_stays_while_somebody_is_set_aside(gate: GateRig) -> None:
    gate.fill("a.1", "a.2")
    gate.line_up("deaf.1")
    gate.later(LEASE_MS)
    gate.poll("")
    assert (gate.holders(), gate.line(), gate.aside()) == ([], [], ["deaf.1"])

    assert gate.forget() == "in_use"
    assert gate.aside() == ["deaf.1"]
