"""Taking a place, or a number in line."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from tests.lua.gate_rig import GateRig
from tests.lua.rig import DAY, LEASE_MS

FULL_AT = [(1, 0), (2, 1), (3, 2)]
"""A limit, and how many hold a place when there is one left."""


class TestAPlace:
    def test_is_taken_while_one_is_free(self, gate: GateRig) -> None:
        reply = gate.enter("a.1")

        assert (reply.status, reply.number, reply.granted) == ("held", 0, "")
        assert gate.held_until("a.1") == gate.now_ms + LEASE_MS

    @pytest.mark.parametrize(("limit", "held"), FULL_AT)
    def test_is_the_last_one_at_the_limit(self, gate: GateRig, limit: int, held: int) -> None:
        gate.limit = limit
        gate.fill(*(f"a.{n}" for n in range(held)))

        assert gate.enter("b.1").status == "held"
        assert gate.enter("b.2").status == "waiting"
        assert gate.enter("b.3", wait="no").status == "full"
        assert len(gate.holders()) == limit

    def test_is_not_taken_twice_by_one_ticket(self, gate: GateRig) -> None:
        gate.fill("a.1")

        assert gate.enter("a.1").status == "held"
        assert gate.holders() == ["a.1"]

    def test_is_taken_over_the_limit_when_that_is_asked_for(self, gate: GateRig) -> None:
        gate.fill("a.1", "a.2")

        assert gate.enter("b.1", wait="over").status == "held"
        assert len(gate.holders()) == 3

    def test_over_the_limit_is_also_taken_out_of_the_line(self, gate: GateRig) -> None:
        gate.fill("a.1", "a.2")
        gate.line_up("b.1", "b.2")

        assert gate.enter("b.1", wait="over").status == "held"
        assert gate.line() == ["b.2"]

    def test_over_the_limit_is_also_taken_by_who_is_set_aside(self, gate: GateRig) -> None:
        gate.fill("a.1", "a.2")
        gate.line_up("deaf.1")
        gate.leave("a.1")
        assert gate.aside() == ["deaf.1"]
        gate.fill("a.3")

        assert gate.enter("deaf.1", wait="over").status == "held"
        assert gate.aside() == []
        assert len(gate.holders()) == 3


class TestTheLine:
    def test_gives_numbers_in_the_order_of_arrival(self, gate: GateRig) -> None:
        gate.fill("a.1", "a.2")

        numbers = [gate.enter(ticket).number for ticket in ("b.9", "a.3", "b.1")]

        assert numbers == [1, 2, 3]
        assert gate.line() == ["b.9", "a.3", "b.1"]

    def test_gives_no_second_number(self, gate: GateRig) -> None:
        gate.fill("a.1", "a.2")
        gate.line_up("b.1", "b.2")

        again = gate.enter("b.1")

        assert (again.status, again.number) == ("waiting", 1)
        assert gate.line() == ["b.1", "b.2"]

    def test_is_never_overtaken_by_a_newcomer(self, gate: GateRig) -> None:
        # Given a line, and a place that nobody of it has heard of yet
        gate.hear("b")
        gate.fill("a.1", "a.2")
        gate.line_up("b.1", "b.2")
        gate.leave("a.1")

        # When another comes
        assert gate.enter("c.1").status == "waiting"

        # Then
        assert gate.heard("b") == ["b.1"]
        assert gate.line() == ["b.2", "c.1"]

    def test_goes_first_when_the_newcomer_takes_back_the_places_of_the_dead(
        self, gate: GateRig
    ) -> None:
        gate.hear("b")
        gate.fill("dead.1", "dead.2")
        gate.line_up("b.1")
        gate.later(LEASE_MS)

        assert gate.enter("c.1").status == "held"
        assert gate.heard("b") == ["b.1"]

    def test_is_not_joined_by_who_leaves_at_once(self, gate: GateRig) -> None:
        gate.fill("a.1", "a.2")
        before = gate.state()

        assert gate.enter("b.1", wait="no").status == "full"
        assert gate.state() == before, "a refusal writes nothing"

    def test_numbers_go_on_when_the_row_is_lost(self, gate: GateRig) -> None:
        gate.fill("a.1", "a.2")
        gate.line_up("b.1", "b.2")
        gate.client.delete(gate.keys["gate"])

        assert gate.enter("b.3").number == 3

    def test_numbers_go_on_when_the_row_is_nonsense(self, gate: GateRig) -> None:
        gate.client.hset(gate.keys["gate"], mapping={"last_number": "x", "limit": "y"})
        gate.fill("a.1", "a.2")

        assert gate.enter("b.1").number == 1


class TestALimitThatIsBroughtAlong:
    @pytest.fixture(autouse=True)
    def _is_brought(self, gate: GateRig) -> None:
        gate.most = 0

    def test_is_that_of_the_last_to_arrive(self, gate: GateRig) -> None:
        assert gate.enter("a.1", limit=5).status == "held"
        assert gate.enter("a.2", limit=1).status == "waiting"
        assert gate.gate().limit == 1

    def test_lets_those_in_line_pass_before_who_raises_it(self, gate: GateRig) -> None:
        gate.hear("b")
        gate.enter("a.1", limit=1)
        for ticket in ("b.1", "b.2", "b.3"):
            gate.enter(ticket, limit=1)

        reply = gate.enter("c.1", limit=3)

        assert reply.status == "waiting"
        assert gate.heard("b") == ["b.1", "b.2"]
        assert gate.line() == ["b.3", "c.1"]

    def test_is_not_brought_back_by_who_has_waited_and_goes_over_it(self, gate: GateRig) -> None:
        gate.hear("b")
        gate.enter("a.1", limit=1)
        gate.enter("b.1", limit=1)
        gate.enter("b.2", limit=1)
        assert gate.enter("c.1", limit=2).status == "waiting"

        assert gate.enter("b.2", wait="over", limit=1).status == "held"

        assert gate.gate().limit == 2

    def test_takes_no_place_from_who_has_one_when_it_is_lowered(self, gate: GateRig) -> None:
        for ticket in ("a.1", "a.2", "a.3"):
            gate.enter(ticket, limit=3)

        gate.enter("a.4", limit=1)
        gate.leave("a.1")
        gate.leave("a.2")

        assert gate.holders() == ["a.3"]
        assert gate.line() == ["a.4"]
        assert gate.leave("a.3").granted == "a.4"


def test_every_key_dies(gate: GateRig) -> None:
    gate.fill("a.1", "a.2")
    gate.line_up("b.1")

    ttls = gate.ttls()

    assert ttls.keys() == {"gate", "gate_holders", "gate_line", "gate_tickets"}
    assert all(6 * DAY < ttl <= 8 * DAY for ttl in ttls.values())


@pytest.mark.parametrize(("ticket", "wait"), [("a.1", "perhaps"), ("a", "line"), (".1", "line")])
def test_nonsense_is_refused(gate: GateRig, ticket: str, wait: str) -> None:
    with pytest.raises(ResponseError, match="BADARG"):
        gate.enter(ticket, wait=wait)
