"""Connect failures: one replica with a broken network must not open a circuit for all."""

from __future__ import annotations

import itertools

import pytest

from gateway.state.store import Policy, RecordReply
from tests.lua.rig import MINUTE, START_MS, Rig

COOLDOWN_MS = 30_000
numbers = itertools.count()


def fails(rig: Rig, replica: str, times: int = 1, *, live: int = 2) -> RecordReply:
    """The replica cannot connect, so many times."""
    for _ in range(times):
        reply = rig.attempt(f"{replica}.{next(numbers)}", "connect", live=live)
    return reply


def test_of_one_replica_among_several_open_nothing(rig: Rig) -> None:
    assert fails(rig, "r1", 20).circuit == ""

    assert rig.fields() == {"a:conn": f"r1:20:{START_MS}"}
    assert rig.admit("r2.1").is_admitted, "other replicas go on"


def test_keep_the_reporter_away_from_the_threshold_on_for_one_cooldown(rig: Rig) -> None:
    fails(rig, "r1", 2)
    assert rig.admit("r1.a").is_admitted, "two are not enough"

    fails(rig, "r1")
    refused = rig.admit("r1.b")
    assert refused.passed_over() == {"a": "unreachable_from_here"}
    assert refused.retry_after_ms == COOLDOWN_MS

    rig.later(COOLDOWN_MS - 1)
    assert rig.admit("r1.c").passed_over() == {"a": "unreachable_from_here"}
    rig.later(1)
    assert rig.admit("r1.d").is_admitted


def test_send_the_reporter_elsewhere_meanwhile(rig: Rig) -> None:
    fails(rig, "r1", 3)

    assert rig.admit("r1.x", "a 1 b 1").location == "b"
    assert rig.admit("r1.y", order="pinned").is_admitted, "a pin skips it"


def test_refused_reporter_writes_nothing(rig: Rig) -> None:
    fails(rig, "r1", 3)
    before = rig.state()

    rig.admit("r1.x")

    assert rig.state() == before


def test_confirmed_by_a_second_replica_count_all(rig: Rig) -> None:
    fails(rig, "r1", 2)

    assert fails(rig, "r2").circuit == "opened"
    assert rig.field("a:failures") == "3"
    assert rig.admit("r3.x").passed_over() == {"a": "circuit_open"}


def test_confirmed_count_at_once_from_then_on(rig: Rig) -> None:
    fails(rig, "r1")
    fails(rig, "r2")
    assert rig.field("a:failures") == "2"

    assert fails(rig, "r1").circuit == "opened"
    assert rig.field("a:failures") == "3"


@pytest.mark.parametrize(("age_ms", "opened"), [(MINUTE, "opened"), (MINUTE + 1, "")])
def test_are_confirmed_within_a_minute(rig: Rig, age_ms: int, opened: str) -> None:
    fails(rig, "r1", 2)
    rig.later(age_ms)

    assert fails(rig, "r2").circuit == opened


def test_of_the_only_live_replica_count_at_once(rig: Rig) -> None:
    assert fails(rig, "r1", 2, live=1).circuit == ""
    assert fails(rig, "r1", 1, live=1).circuit == "opened"


def test_noted_before_the_others_left_count_when_it_is_alone(rig: Rig) -> None:
    fails(rig, "r1", 2, live=3)

    assert fails(rig, "r1", live=1).circuit == "opened"


def test_never_count_for_more_than_the_threshold(rig: Rig) -> None:
    fails(rig, "r1", 50)
    fails(rig, "r2")

    assert rig.field("a:failures") == "3"
    assert float(rig.field("a:availability") or 0) == pytest.approx(0.729)


@pytest.mark.parametrize("how", ["settle", "first_token"])
def test_are_void_once_their_replica_gets_through(rig: Rig, how: str) -> None:
    fails(rig, "r1", 2)
    rig.admit("r1.ok")

    rig.settle("r1.ok", "success") if how == "settle" else rig.first_token("r1.ok")

    assert rig.field("a:conn") is None


def test_of_others_stand_when_one_replica_gets_through(rig: Rig) -> None:
    fails(rig, "r1", 2)
    rig.attempt("r2.ok", "success")

    assert rig.field("a:conn") == f"r1:2:{START_MS}"
    assert fails(rig, "r1").circuit == ""


def test_are_forgotten_when_nobody_adds_to_them(rig: Rig) -> None:
    fails(rig, "r1", 2)
    rig.later(MINUTE + 1)
    fails(rig, "r1")

    assert rig.field("a:conn") == f"r1:1:{rig.now_ms}"


def test_are_kept_for_a_whole_cooldown_that_is_longer(rig: Rig) -> None:
    rig.policy = Policy(cooldown_ms=300_000)
    fails(rig, "r1", 3)
    rig.later(200_000)
    fails(rig, "r2")

    assert rig.admit("r1.x").passed_over() == {"a": "unreachable_from_here"}


def test_leave_the_last_status_alone(rig: Rig) -> None:
    rig.attempt("r1.s", "failure", status=503)
    rig.attempt("r1.c", "connect", status=0)

    assert rig.field("a:last_status") == "503"


@pytest.mark.parametrize(
    "nonsense",
    ["", "x", ":::", "r1:-5:7", "r1:x:y", f"r1:{'9' * 40}:{START_MS}", f"r1:3:{'9' * 40}"],
)
def test_edited_notes_break_nothing(rig: Rig, nonsense: str) -> None:
    rig.put({"a:conn": nonsense})

    rig.admit("r1.x")
    fails(rig, "r1")

    note = rig.field("a:conn")
    assert note is not None
    assert note.startswith("r1:")
    assert 1 <= int(note.split(":")[1]) <= 1000


def test_dated_in_the_future_keep_nobody_away(rig: Rig) -> None:
    fails(rig, "r1", 3)
    rig.later(-3_600_000)

    assert rig.admit("r1.x").is_admitted
