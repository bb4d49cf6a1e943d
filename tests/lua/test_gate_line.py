"""A place goes on: to whom, who is told, what becomes of those that cannot be told."""

from __future__ import annotations

import pytest

from tests.lua.gate_rig import CONFIRM_MS, KEPT_ASIDE_MS, GateRig
from tests.lua.rig import DAY, LEASE_MS, MINUTE, SECOND


@pytest.fixture
def full(gate: GateRig) -> GateRig:
    """Both places are held, and replicas a, b and c hear."""
    gate.hear("a", "b", "c")
    gate.fill("a.1", "a.2")
    return gate


class TestAPlaceThatIsGivenBack:
    def test_goes_to_the_first_in_line_who_is_told(self, full: GateRig) -> None:
        full.line_up("b.1", "c.1")

        reply = full.leave("a.1")

        assert (reply.status, reply.granted, reply.in_flight, reply.waiting) == ("done", "", 2, 1)
        assert (full.heard("b"), full.heard("c")) == (["b.1"], [])
        assert full.holders() == ["a.2", "b.1"]

    def test_is_told_to_the_caller_by_the_answer(self, full: GateRig) -> None:
        full.line_up("a.3", "b.1")

        assert full.leave("a.1").granted == "a.3"
        assert full.heard("a") == []

    def test_goes_on_once_though_it_is_given_back_twice(self, full: GateRig) -> None:
        full.line_up("b.1", "b.2", "b.3")
        full.leave("a.1")

        assert full.leave("a.1").status == "gone"
        assert full.heard("b") == ["b.1"]
        assert len(full.holders()) == 2

    def test_leaves_nothing_when_nobody_waits(self, full: GateRig) -> None:
        full.leave("a.1")
        full.leave("a.2")

        assert full.is_empty()

    def test_goes_to_nobody_while_there_are_too_many(self, full: GateRig) -> None:
        full.line_up("b.1")
        full.enter("a.3", wait="over")

        full.leave("a.1")

        assert full.heard("b") == []
        assert full.leave("a.2").in_flight == 2


class TestGivingUp:
    def test_leaves_no_trace_of_a_waiter(self, full: GateRig) -> None:
        full.line_up("b.1", "b.2")

        assert full.leave("b.1").status == "done"

        assert full.line() == ["b.2"]
        assert full.tickets() == ["a.1", "a.2", "b.2"]
        assert full.gate().in_flight == 2

    def test_gives_back_what_was_granted_in_the_same_instant(self, full: GateRig) -> None:
        full.line_up("b.1", "c.1")
        full.leave("a.1")

        full.leave("b.1")

        assert full.heard("c") == ["c.1"]
        assert full.holders() == ["a.2", "c.1"]

    def test_leaves_no_trace_of_one_set_aside(self, full: GateRig) -> None:
        full.line_up("deaf.1")
        full.leave("a.1")
        assert full.aside() == ["deaf.1"]

        assert full.leave("deaf.1").status == "done"
        assert full.leave("a.2").status == "done"
        assert full.is_empty()


class TestAConfirmedGrant:
    def test_is_held_for_a_lease(self, full: GateRig) -> None:
        full.line_up("b.1")
        full.leave("a.1")
        assert full.held_until("b.1") == full.now_ms + CONFIRM_MS

        reply = full.confirm("b.1")

        assert (reply.status, reply.number) == ("held", 1)
        assert full.held_until("b.1") == full.now_ms + LEASE_MS

    def test_may_be_confirmed_again(self, full: GateRig) -> None:
        full.line_up("b.1")
        full.leave("a.1")
        full.confirm("b.1")
        full.later(SECOND)

        assert full.confirm("b.1").status == "held"

    def test_is_lost_with_its_lease_and_no_more_than_itself(self, full: GateRig) -> None:
        full.line_up("b.1", "b.2")
        full.leave("a.1")
        full.confirm("b.1")
        full.heard("b")
        full.later(LEASE_MS)
        full.poll("")

        assert full.confirm("b.1").status == "gone"
        assert full.heard("b") == ["b.2"], "its replica counts as alive"

    def test_never_was_without_a_ticket(self, full: GateRig) -> None:
        before = full.state()

        assert full.confirm("b.1").status == "gone"
        assert full.state() == before

    def test_is_none_while_it_waits(self, full: GateRig) -> None:
        full.line_up("b.1")
        before = full.state()

        reply = full.confirm("b.1")

        assert (reply.status, reply.number) == ("waiting", 1)
        assert full.state() == before

    def test_may_also_be_heard_of_by_entering_again(self, full: GateRig) -> None:
        full.line_up("b.1")
        full.leave("a.1")

        assert full.enter("b.1").status == "held"
        assert full.held_until("b.1") == full.now_ms + LEASE_MS


class TestAGrantThatNobodyConfirms:
    @pytest.fixture
    def granted(self, full: GateRig) -> GateRig:
        """Replica b has been granted a place, and does not move; c waits between its tickets."""
        full.line_up("b.1", "b.2", "c.1", "b.3", "c.2")
        full.leave("a.1")
        assert full.heard("b") == ["b.1"]
        return full

    def test_stands_until_its_time_is_over(self, granted: GateRig) -> None:
        granted.later(CONFIRM_MS - 1)
        granted.poll("")

        assert granted.holders() == ["a.2", "b.1"]
        assert granted.confirm("b.1").status == "held"

    def test_goes_past_all_of_its_replica(self, granted: GateRig) -> None:
        granted.later(CONFIRM_MS)
        granted.poll("")

        assert granted.heard("b") == []
        assert granted.heard("c") == ["c.1"]
        assert granted.aside() == ["b.1", "b.2"]
        assert granted.line() == ["b.3", "c.2"]

    def test_goes_past_them_by_whatever_call_comes(self, granted: GateRig) -> None:
        granted.later(CONFIRM_MS)

        assert granted.enter("a.9").status == "waiting"
        assert granted.heard("c") == ["c.1"]

    def test_is_not_to_be_had_later(self, granted: GateRig) -> None:
        granted.later(CONFIRM_MS)
        granted.poll("")

        assert granted.confirm("b.1").status == "waiting"
        assert "b.1" not in granted.holders()

    def test_leaves_its_replica_aside_until_that_polls(self, granted: GateRig) -> None:
        # Given that c has been granted the place, and more come free
        granted.later(CONFIRM_MS)
        granted.poll("")
        assert granted.leave("a.2").status == "done"
        assert granted.heard("c") == ["c.1", "c.2"], "and not b.3 before it"
        granted.confirm("c.1")

        # When b moves again, then it has its numbers
        reply = granted.poll("b", waiting="b.1 b.2 b.3")
        assert (reply.granted, reply.unknown) == ("", "")
        assert granted.line() == ["b.1", "b.2", "b.3"]
        granted.leave("c.1")
        assert granted.heard("b") == ["b.1"]

    def test_is_forgotten_a_lease_later(self, granted: GateRig) -> None:
        granted.later(CONFIRM_MS)
        granted.poll("")
        granted.confirm("c.1")
        granted.later(LEASE_MS - 1)
        granted.poll("", held="a.2 c.1")
        assert granted.aside() == ["b.1", "b.2"]

        granted.later(1)
        granted.poll("")

        assert "b.1" not in granted.tickets()
        assert granted.poll("b", waiting="b.1").unknown == "b.1"

    def test_has_a_trace_that_dies(self, granted: GateRig) -> None:
        granted.later(CONFIRM_MS)
        granted.poll("")

        ttls = granted.ttls()

        assert 0 < ttls["gate_frozen"] <= 10 * MINUTE
        assert 0 < ttls["gate_aside"] <= 8 * DAY


class TestAReplicaThatCannotBeTold:
    def test_is_skipped_and_keeps_its_number(self, full: GateRig) -> None:
        full.line_up("deaf.1", "b.1", "deaf.2")
        full.leave("a.1")
        assert full.heard("b") == ["b.1"]

        assert full.poll("deaf", waiting="deaf.1 deaf.2").granted == ""

        assert (full.line(), full.aside()) == (["deaf.1", "deaf.2"], [])

    def test_is_told_by_its_poll_when_a_place_is_free(self, full: GateRig) -> None:
        full.line_up("deaf.1", "deaf.2")
        full.leave("a.1")

        reply = full.poll("deaf", waiting="deaf.1 deaf.2")

        assert reply.granted == "deaf.1"
        assert full.confirm("deaf.1").status == "held"

    def test_is_told_by_the_answer_to_what_it_gives_back(self, full: GateRig) -> None:
        full.deafen("a")
        full.line_up("a.3")

        assert full.leave("a.1").granted == "a.3"

    def test_does_not_keep_the_next_in_line_waiting(self, full: GateRig) -> None:
        full.line_up(*(f"dead.{n}" for n in range(100)), "b.1")

        full.leave("a.1")

        assert full.heard("b") == ["b.1"]
        assert len(full.aside()) == 100

    def test_is_forgotten_when_it_has_not_polled_twice(self, full: GateRig) -> None:
        full.line_up("dead.1")
        full.leave("a.1")
        full.later(KEPT_ASIDE_MS - 1)
        full.poll("")
        assert full.aside() == ["dead.1"]

        full.later(1)
        full.poll("")

        assert full.aside() == []
        assert full.tickets() == ["a.2"]

    def test_does_not_hold_a_free_place_back(self, full: GateRig) -> None:
        full.line_up("dead.1")
        full.leave("a.1")

        assert full.enter("b.1").status == "held"

    def test_is_passed_a_few_hundred_tickets_at_a_time_and_nobody_overtakes_the_rest(
        self, full: GateRig
    ) -> None:
        full.line_up(*(f"dead.{n}" for n in range(600)), "b.1")

        full.leave("a.1")
        assert full.enter("c.1", wait="no").status == "full", "there is a place, and a line"
        assert full.heard("b") == []

        assert full.enter("c.2").status == "waiting"
        assert full.heard("b") == ["b.1"]

    def test_is_anybody_where_the_acl_forbids_the_channel(self, full: GateRig) -> None:
        """Publishing fails, the place is not lost, and polls tell."""
        full.publish = "NOSUCHCOMMAND"
        full.line_up("b.1")

        assert full.leave("a.1").status == "done"
        assert full.aside() == ["b.1"]
        assert full.poll("b", waiting="b.1").granted == "b.1"


class TestTheDead:
    def test_give_their_places_to_the_line_in_its_order(self, full: GateRig) -> None:
        full.line_up("b.1", "c.1", "b.2")
        full.later(LEASE_MS)

        full.poll("")

        assert (full.heard("b"), full.heard("c")) == (["b.1"], ["c.1"])
        assert full.line() == ["b.2"]

    def test_give_no_place_back_before_their_lease_is_over(self, full: GateRig) -> None:
        full.line_up("b.1")
        full.later(LEASE_MS - 1)

        full.poll("")

        assert full.heard("b") == []

    def test_leave_nothing_when_nobody_waits(self, full: GateRig) -> None:
        full.later(LEASE_MS)
        full.poll("")

        assert full.is_empty()

    def test_are_not_taken_for_dead_by_a_clock_that_was_set_back(self, full: GateRig) -> None:
        full.later(-MINUTE)
        full.poll("a", held="a.1 a.2")

        assert full.held_until("a.1") == full.now_ms + LEASE_MS

    def test_are_not_kept_aside_by_a_clock_that_was_set_back(self, full: GateRig) -> None:
        full.line_up("dead.1")
        full.leave("a.1")
        full.later(-60 * MINUTE)
        full.poll("b")
        full.later(LEASE_MS)
        full.poll("b")

        assert full.aside() == []

    def test_do_not_outlive_a_clock_that_was_set_back(self, full: GateRig) -> None:
        full.later(-60 * MINUTE)
        full.poll("b")
        full.later(LEASE_MS)
        full.poll("b")

        assert full.holders() == []
