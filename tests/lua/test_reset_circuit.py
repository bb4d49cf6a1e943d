"""reset_circuit: an endpoint is healthy again, on an operator's word, and keeps what it has."""

from __future__ import annotations

import pytest

from tests.lua.rig import OWN, Rig, prompt


def reset(rig: Rig, at: str = "a") -> str:
    return rig.run("reset_circuit", location=at)[1]


def test_of_a_healthy_endpoint_writes_nothing(rig: Rig) -> None:
    before = rig.state()

    assert reset(rig) == "closed"
    assert rig.state() == before


def test_puts_an_endpoint_back_into_service_at_once(rig: Rig) -> None:
    rig.open_circuit()

    assert reset(rig) == "open"
    assert (rig.admit("r.1").location, rig.admit("r.2").probe) == ("a", 0)


def test_ends_a_probe(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(30_000)
    rig.admit("probe.1")

    assert reset(rig) == "half_open"
    assert rig.admit("r.1").is_admitted
    assert rig.settle("probe.1", "neutral").status == "done"


def test_forgets_every_failure_and_nothing_of_what_is_under_way(rig: Rig) -> None:
    rig.attempt("r.1", "auth", status=401)
    rig.attempt("r.2", "connect")
    rig.admit("r.3", prompt=prompt(300_000))

    reset(rig)

    assert rig.fields() == {
        "a:inflight": "1",
        "a:prefill_tokens": "300000",
        "a:elephants": "1",
        f"a:own:{OWN}": "300000",
        "a:generation": "1",
    }


def test_leaves_other_endpoints_alone(rig: Rig) -> None:
    rig.open_circuit("a")
    rig.open_circuit("b")

    reset(rig, "a")

    assert rig.admit("r.1", "b 1").passed_over() == {"b": "circuit_open"}


@pytest.mark.parametrize("how", ["failure", "connect"])
def test_failures_are_counted_from_nothing_again(rig: Rig, how: str) -> None:
    for number in range(2):
        rig.attempt(f"r.{number}", how, live=1)
    reset(rig)

    assert rig.attempt("r.9", how, live=1).circuit == ""
    assert rig.field("a:failures") == "1"
