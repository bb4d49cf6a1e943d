"""Any sequence of calls: never above the limit, no place lost, first come first served."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.state.keys import Keys
from tests.lua.gate_model import CONFIRM_MS, GateModel, replica
from tests.lua.gate_rig import GateRig
from tests.lua.rig import LEASE_MS, SECOND
from tests.redis_servers import RedisServer, ScriptStore, script_store

REPLICAS = ("a", "b", "c")
STEPS_MS = (1, CONFIRM_MS - 1, CONFIRM_MS, 2 * SECOND, 6 * SECOND, LEASE_MS)


class Calls(RuleBasedStateMachine):
    """Replicas that enter, hear, confirm, leave, poll, freeze, grow deaf and die, in any order.

    A replica here remembers what a real one does: what it waits with and what it holds.
    """

    store: ScriptStore
    keys: Keys
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).runs += 1
        self.rig = GateRig(self.store, self.keys, f"u:p:{self.runs}")
        self.rig.limit, self.rig.most, self.rig.interval = 2, 4, 2
        self.model = GateModel(2, 4, 2, LEASE_MS)
        self.waiting: dict[str, list[str]] = {who: [] for who in REPLICAS}
        self.held: dict[str, list[str]] = {who: [] for who in REPLICAS}
        self.before: set[str] = set()
        """Who held a place after the last call."""
        self.excused: set[str] = set()
        """Who may have got one since, over the limit."""
        self.last_told: list[str] = []
        self.ended: list[str] = []
        self.entered = 0
        self.numbers: list[int] = []
        for who in REPLICAS:
            self.hears(who)

    def hears(self, who: str) -> None:
        self.rig.hear(who)
        self.model.listening.add(who)

    @initialize(whose=st.lists(st.sampled_from(REPLICAS), min_size=3, max_size=8))
    def a_line_has_formed(self, whose: list[str]) -> None:
        for who in whose:
            self.enter(who, "line")

    @rule(who=st.sampled_from(REPLICAS), wait=st.sampled_from(["line", "line", "line", "no"]))
    def enter(self, who: str, wait: str) -> None:
        self.entered += 1
        ticket = f"{who}.{self.entered}"
        expected, granted = self.model.enter(ticket, wait, self.rig.now_ms)
        reply = self.rig.enter(ticket, wait=wait)
        assert (reply.status, reply.granted.split()) == (expected, granted)
        if expected == "held":
            self.held[who].append(ticket)
        elif expected == "waiting":
            self.waiting[who].append(ticket)
            self.numbers.append(reply.number)

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data())
    def enter_again(self, data: st.DataObject) -> None:
        """As after a lost answer."""
        ticket = self.one_of(data, self.waiting)
        expected, granted = self.model.enter(ticket, "line", self.rig.now_ms)
        reply = self.rig.enter(ticket)
        assert (reply.status, reply.granted.split()) == (expected, granted)
        if expected == "held":
            self.takes(ticket)

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data())
    def go_over_the_limit(self, data: st.DataObject) -> None:
        ticket = self.one_of(data, self.waiting)
        expected, _ = self.model.enter(ticket, "over", self.rig.now_ms)
        assert self.rig.enter(ticket, wait="over").status == expected == "held"
        self.takes(ticket)
        self.excused.add(ticket)

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        ticket = self.one_of(data, self.waiting)
        expected = self.model.confirm(ticket, self.rig.now_ms)
        assert self.rig.confirm(ticket).status == expected
        if expected == "held":
            self.takes(ticket)
        elif expected == "gone":
            self.waiting[replica(ticket)].remove(ticket)

    @precondition(lambda self: self.last_told)
    @rule()
    def confirm_what_was_told_last(self) -> None:
        ticket = self.last_told.pop()
        if ticket in self.waiting[replica(ticket)]:
            expected = self.model.confirm(ticket, self.rig.now_ms)
            assert self.rig.confirm(ticket).status == expected
            if expected == "held":
                self.takes(ticket)

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), status=st.sampled_from([200, 200, 429, 500]))
    def release(self, data: st.DataObject, status: int) -> None:
        ticket = self.one_of(data, self.held)
        self.held[replica(ticket)].remove(ticket)
        self.leaves(ticket, status)

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        ticket = self.one_of(data, self.waiting)
        self.waiting[replica(ticket)].remove(ticket)
        self.leaves(ticket, 0)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def leave_again(self, data: st.DataObject) -> None:
        self.leaves(data.draw(st.sampled_from(self.ended)), 429)

    def leaves(self, ticket: str, status: int) -> None:
        expected, granted = self.model.leave(ticket, status, self.rig.now_ms)
        reply = self.rig.leave(ticket, status)
        assert (reply.status, reply.granted.split()) == (expected, granted)
        assert reply.new_limit == self.model.limit
        self.ended.append(ticket)

    @rule(who=st.sampled_from(REPLICAS), renews=st.booleans())
    def poll(self, who: str, renews: bool) -> None:
        waiting, held = self.waiting[who], self.held[who] if renews else []
        lost = [ticket for ticket in held if ticket not in self.model.holders]
        granted, unknown, restored = self.model.poll(who, waiting, held, self.rig.now_ms)
        reply = self.rig.poll(who, waiting=" ".join(waiting), held=" ".join(held))
        assert set(reply.granted.split()) == granted
        assert reply.unknown.split() == unknown
        assert reply.restored == restored
        self.excused.update(lost)
        for ticket in unknown:
            waiting.remove(ticket)
        self.last_told += sorted(granted.intersection(waiting))

    @rule(data=st.data(), who=st.sampled_from(REPLICAS))
    def a_grant_goes_unheard_while_another_polls(self, data: st.DataObject, who: str) -> None:
        if any(self.held.values()):
            self.release(data, 500)
        self.rig.later(CONFIRM_MS)
        self.poll(who, renews=True)

    @rule()
    def reap(self) -> None:
        self.model.poll("", [], [], self.rig.now_ms)
        self.rig.poll("")

    @rule(who=st.sampled_from(REPLICAS))
    def die(self, who: str) -> None:
        """`kill -9`: it forgets all, and its channel has nobody."""
        self.waiting[who], self.held[who] = [], []
        self.grows_deaf(who)

    @rule(who=st.sampled_from(REPLICAS))
    def grows_deaf(self, who: str) -> None:
        if who in self.model.listening:
            self.model.listening.discard(who)
            self.rig.deafen(who)

    @rule(who=st.sampled_from(REPLICAS))
    def hears_again(self, who: str) -> None:
        if who not in self.model.listening:
            self.hears(who)

    @rule(ms=st.sampled_from(STEPS_MS))
    def wait(self, ms: int) -> None:
        self.rig.later(ms)

    def takes(self, ticket: str) -> None:
        who = replica(ticket)
        self.waiting[who].remove(ticket)
        self.held[who].append(ticket)

    @staticmethod
    def one_of(data: st.DataObject, tickets: dict[str, list[str]]) -> str:
        return data.draw(st.sampled_from([t for some in tickets.values() for t in some]))

    @invariant()
    def redis_has_what_the_reference_has(self) -> None:
        assert self.rig.holders() == sorted(self.model.holders)
        assert self.rig.line() == sorted(self.model.line, key=self.model.line.__getitem__)
        assert self.rig.aside() == sorted(self.model.aside)
        assert self.rig.tickets() == sorted(
            {*self.model.holders, *self.model.line, *self.model.aside}
        )

    @invariant()
    def nobody_passes_while_there_are_as_many_as_may(self) -> None:
        """But for those who are let through over the limit, or put back where they were."""
        passed = self.model.holders.keys() - self.before - self.excused
        assert not passed or len(self.rig.holders()) <= self.rig.gate().limit
        self.before = set(self.model.holders)
        self.excused.clear()

    @invariant()
    def nobody_stands_beside_a_free_place(self) -> None:
        state = self.rig.gate()
        assert not state.waiting or state.in_flight >= state.limit

    @invariant()
    def grants_are_told_in_the_order_of_numbers(self) -> None:
        for who in {at for at, _ in self.model.told}:
            told = [ticket for at, ticket in self.model.told if at == who]
            assert self.rig.heard(who) == told
        self.last_told = [ticket for _, ticket in self.model.told] or self.last_told
        self.model.told.clear()

    def teardown(self) -> None:
        """In the end nobody has left a trace."""
        for who in REPLICAS:
            for ticket in self.held[who]:
                self.leaves(ticket, 200)
            self.die(who)
        self.rig.later(LEASE_MS)
        self.rig.poll("")
        self.rig.later(LEASE_MS)
        self.rig.poll("")
        assert self.rig.is_empty() or self.rig.ttls().keys() <= {"gate", "gate_frozen"}
        assert self.numbers == sorted(self.numbers)
        self.rig.close()
        self.rig.client.delete(*self.rig.keys.values())


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[ScriptStore]:
    with script_store(redis_server) as store:
        yield store


def test_any_sequence_of_calls(store: ScriptStore, keys: Keys) -> None:
    machine = type("Sequence", (Calls,), {"store": store, "keys": keys})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=50,
            stateful_step_count=50,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
