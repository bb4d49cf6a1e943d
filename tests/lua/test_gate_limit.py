"""The learned limit: only 200 raises it, only 429 lowers it."""

from __future__ import annotations

import pytest

from gateway.state.gate_store import LeaveReply
from tests.lua.gate_rig import GateRig
from tests.lua.rig import DAY


@pytest.fixture(autouse=True)
def _eight_to_begin_with(gate: GateRig) -> None:
    gate.limit = 8


def change(reply: LeaveReply) -> tuple[str, int, int]:
    return reply.reason, reply.old_limit, reply.new_limit


def test_a_429_lowers_it_by_one(gate: GateRig) -> None:
    assert change(gate.answered(429)) == ("429", 8, 7)
    assert gate.gate().limit == 7


def test_a_429_never_lowers_it_below_one(gate: GateRig) -> None:
    gate.answered(429, 7)

    assert change(gate.answered(429)) == ("", 1, 1)


def test_so_many_successes_raise_it_by_one_and_a_429_takes_that_back(gate: GateRig) -> None:
    assert change(gate.answered(200, 99)) == ("", 8, 8)
    assert gate.gate().successes == 99

    assert change(gate.answered(200)) == ("probe", 8, 9)
    assert (gate.gate().successes, gate.gate().probing) == (0, 1)

    assert change(gate.answered(429)) == ("429_reverted_probe", 9, 8)
    assert gate.gate().probing == 0


def test_a_429_begins_the_count_anew(gate: GateRig) -> None:
    gate.answered(200, 99)
    gate.answered(429)

    assert change(gate.answered(200, 99)) == ("", 7, 7)
    assert change(gate.answered(200)) == ("probe", 7, 8)


def test_a_probe_stands_until_a_429(gate: GateRig) -> None:
    gate.interval = 2
    gate.answered(200, 2)
    gate.answered(200)

    assert gate.gate().probing == 1
    assert change(gate.answered(429)) == ("429_reverted_probe", 9, 8)


def test_a_429_at_one_is_told_only_when_it_reverts_a_probe(gate: GateRig) -> None:
    gate.limit, gate.most, gate.interval = 1, 1, 1
    gate.answered(200)

    assert change(gate.answered(429)) == ("429_reverted_probe", 1, 1)
    assert change(gate.answered(429)) == ("", 1, 1)


@pytest.mark.parametrize("most", [8, 9])
def test_it_rises_to_the_most_and_no_further(gate: GateRig, most: int) -> None:
    gate.most, gate.interval = most, 1

    replies = [gate.answered(200) for _ in range(3)]

    assert replies[-1].new_limit == most
    assert [reply.reason for reply in replies].count("probe") == most - 8
    assert (gate.gate().successes, gate.gate().probing) == (0, 1), "at the most it probes, too"


@pytest.mark.parametrize("status", [201, 204, 0, 400, 401, 408, 500, 503])
def test_no_other_status_counts(gate: GateRig, status: int) -> None:
    gate.interval = 2
    gate.answered(200)

    assert change(gate.answered(status)) == ("", 8, 8)
    assert gate.gate().successes == 1


def test_it_is_learned_only_from_those_who_held_a_place(gate: GateRig) -> None:
    gate.limit = 1
    gate.fill("a.1")
    gate.line_up("b.1")

    gate.leave("b.1", 429)
    gate.leave("never.1", 429)

    assert gate.gate().limit == 1
    assert gate.row("successes") is None


def test_it_is_learned_once_from_one_who_leaves_twice(gate: GateRig) -> None:
    gate.fill("a.1")
    gate.leave("a.1", 429)

    assert change(gate.leave("a.1", 429)) == ("", 7, 7)


def test_lowered_it_takes_no_place_and_gives_none_before_there_are_fewer(gate: GateRig) -> None:
    # Given eight under way and two in line
    gate.hear("b")
    gate.fill(*(f"a.{n}" for n in range(8)))
    gate.line_up("b.1", "b.2")

    # When two are answered with 429
    gate.leave("a.0", 429)
    gate.leave("a.1", 429)

    # Then six go on, which is the limit
    assert (gate.gate().limit, len(gate.holders())) == (6, 6)
    assert gate.heard("b") == []
    gate.leave("a.2", 500)
    assert gate.heard("b") == ["b.1"]


def test_raised_it_lets_one_more_pass(gate: GateRig) -> None:
    gate.limit, gate.interval = 1, 1
    gate.hear("b")
    gate.fill("a.1")
    gate.line_up("b.1", "b.2", "b.3")

    gate.leave("a.1", 200)

    assert gate.heard("b") == ["b.1", "b.2"]


def test_the_most_is_that_of_the_configuration_now(gate: GateRig) -> None:
    gate.most, gate.interval = 64, 1
    gate.answered(200, 4)
    gate.most = 10

    assert gate.gate().limit == 10
    assert change(gate.answered(429)) == ("429_reverted_probe", 10, 9)


def test_what_was_learned_outranks_what_it_begins_with(gate: GateRig) -> None:
    gate.answered(429)
    gate.limit = 20

    assert gate.gate().limit == 7


def test_it_outlives_all_places_by_a_week(gate: GateRig) -> None:
    gate.answered(429)

    assert gate.is_empty()
    assert 6 * DAY < gate.ttls()["gate"] <= 7 * DAY


def test_nonsense_in_its_fields_reads_as_the_default(gate: GateRig) -> None:
    gate.client.hset(gate.keys["gate"], mapping={"limit": "x", "successes": "-3", "probing": "y"})

    state = gate.gate()

    assert (state.limit, state.successes, state.probing) == (8, 0, 0)
    assert change(gate.answered(429)) == ("429", 8, 7)


def test_a_limit_that_is_brought_along_learns_nothing(gate: GateRig) -> None:
    gate.most, gate.limit, gate.interval = 0, 3, 1

    assert change(gate.answered(429)) == ("", 3, 3)
    assert change(gate.answered(200)) == ("", 3, 3)
