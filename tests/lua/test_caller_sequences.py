"""Any sequence of calls: the scripts do what the reference does, and no limit is exceeded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.core.limits import Scope
from gateway.state.keys import Keys
from tests.lua.caller_model import CallerModel
from tests.lua.caller_rig import WINDOW_MS, CallerRig, fixed, scope, shadow
from tests.lua.rig import LEASE_MS, MINUTE, SECOND
from tests.redis_servers import RedisServer, ScriptStore, script_store

KEY = scope(rpm=4, tpm=1000, max_parallel_requests=3, max_budget=900, budget_duration_ms=5 * MINUTE)
TEAM = scope("team", "acme", rpm=fixed(6), tpm=fixed(1500), max_budget=2500)
QUIET = scope("user", "bob", rpm=shadow(2), tpm=shadow(500), max_parallel_requests=shadow(1))
SCOPES = (KEY, TEAM, QUIET)
OFTEN = [(KEY, TEAM, QUIET), (KEY, TEAM), (TEAM,), (KEY,), (QUIET,)]
STEPS_MS = (1, 700, 2 * SECOND, 10 * SECOND, LEASE_MS, 31 * SECOND, MINUTE, 2 * MINUTE, 11 * MINUTE)

tokens = st.sampled_from([1, 100, 400, 1000, 1001])
money = st.sampled_from([0, 1, 100, 300, 901])


class Calls(RuleBasedStateMachine):
    """Replicas that reserve, settle, renew, die and return, in whatever order."""

    store: ScriptStore
    keys: Keys
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).runs += 1
        self.rig = CallerRig(self.store, self.keys, f"team:{self.runs}")
        self.model = CallerModel(SCOPES, LEASE_MS, WINDOW_MS)
        self.granted: list[str] = []
        self.of_key: list[str] = []
        self.records: dict[str, tuple[int, int]] = {}
        """When a reservation of the key was granted, and what it has not given back of it."""

    @rule(scopes=st.sampled_from(OFTEN), tokens=tokens, nanousd=money)
    def reserve(self, scopes: tuple[Scope, ...], tokens: int, nanousd: int) -> None:
        name = f"r.{len(self.granted)}"
        now = self.model.clock(self.rig.now_ms)
        reply = self.rig.reserve(name, *scopes, tokens=tokens, nanousd=nanousd)
        granted = self.model.reserve(name, scopes, tokens, nanousd, self.rig.now_ms)
        assert reply.is_reserved == granted
        if granted:
            self.granted.append(name)
        if granted and KEY in scopes:
            self.of_key.append(name)
            self.records[name] = (now, tokens)
            self.no_trailing_minute_holds_more_than_the_limit(now)

    def no_trailing_minute_holds_more_than_the_limit(self, now: int) -> None:
        recent = [left for at, left in self.records.values() if now - WINDOW_MS < at <= now]
        assert len(recent) <= 4
        assert sum(recent) <= 1000

    def some(self, data: st.DataObject) -> str:
        """One that was granted, whether it stands or not; or one that never was."""
        recent = [*self.granted, "never.1"][-4:]
        return data.draw(st.sampled_from(recent) | st.sampled_from([*self.granted, "never.1"]))

    @rule(data=st.data(), tokens=tokens, nanousd=money)
    def settle(self, data: st.DataObject, tokens: int, nanousd: int) -> None:
        name = self.some(data)
        expected = self.model.settle(name, tokens, nanousd, self.rig.now_ms, used=True)
        assert self.rig.settle_caller(name, tokens=tokens, nanousd=nanousd) == expected
        if name in self.records and expected != "gone":
            at, reserved = self.records[name]
            self.records[name] = (at, min(reserved, tokens))

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        name = self.some(data)
        expected = self.model.settle(name, 0, 0, self.rig.now_ms, used=False)
        assert self.rig.settle_caller(name, outcome="unused") == expected
        if expected != "gone":
            self.records.pop(name, None)

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        names = [self.some(data), self.some(data)]
        assert self.rig.renew_caller(*names) == self.model.renew(names, self.rig.now_ms)

    @precondition(lambda self: self.model.reservations)
    @rule(data=st.data())
    def reassert(self, data: st.DataObject) -> None:
        self._reassert(data.draw(st.sampled_from([*self.model.reservations])))

    @rule()
    def replica_is_away_for_a_lease_and_comes_back(self) -> None:
        self.rig.later(LEASE_MS)
        self.reap(128)
        for name in self.granted[-2:]:
            if self.rig.now_ms < self.model.lapsed.get(name, (0,))[0]:
                self._reassert(name)

    def _reassert(self, name: str) -> None:
        expected = self.model.reassert(name, self.rig.now_ms)
        assert self.rig.reassert_caller(name) == expected

    @rule(limit=st.sampled_from([1, 128]))
    def reap(self, limit: int) -> None:
        assert self.rig.reap_caller(limit) == self.model.reap(self.rig.now_ms, limit)

    @rule(ms=st.sampled_from(STEPS_MS))
    def wait(self, ms: int) -> None:
        self.rig.later(ms)

    @precondition(lambda self: self.rig.now_ms - 2 * SECOND > self.model.at_ms - 5 * SECOND)
    @rule()
    def clock_steps_back_a_little(self) -> None:
        self.rig.later(-2 * SECOND)

    @invariant()
    def what_is_taken_is_what_the_reference_sums_up(self) -> None:
        now = self.model.clock(self.rig.now_ms)
        uses = self.rig.uses(*SCOPES)
        for name, window in self.model.windows.items():
            assert uses[name].taken == window.taken(now), name
        for name in self.model.budgets:
            assert uses[f"{name} max_budget"].taken == self.model.money_taken(name, now)
        for name in ("key:alice", "user:bob"):
            assert uses[f"{name} max_parallel_requests"].taken == self.model.parallel(name)
        refused = {
            f"{use.scope} {use.limit}".replace("max_parallel_requests", "parallel"): count
            for use in uses.values()
            if (count := use.would_have_refused)
        }
        assert refused == self.model.would_refuse

    @invariant()
    def nothing_is_less_than_none(self) -> None:
        assert all(use.taken >= 0 for use in self.rig.uses(*SCOPES).values())
        assert not any("-" in text for text in self.rig.limit_fields().values())

    @invariant()
    def money_is_held_for_what_stands_and_spent_for_the_rest(self) -> None:
        fields = self.rig.limit_fields()
        for name, budget in self.model.budgets.items():
            if text := fields.get(f"{name}:budget"):
                words = dict(word.split("=") for word in text.split())
                assert int(words["spent"]) == budget.spent()
                assert int(words["spent"]) + int(words["held"]) == budget.taken()

    @invariant()
    def reservations_are_those_that_stand(self) -> None:
        stand = self.rig.client.zrange(self.rig.keys["reservations"], 0, -1)
        assert set(stand) == self.model.reservations.keys()
        assert set(self.rig.client.hkeys(self.rig.keys["reserved"])) == set(stand)

    def teardown(self) -> None:
        """In the end every reservation has ended, no place is taken and no money held."""
        for name in self.granted[::2]:
            self.rig.settle_caller(name, tokens=1, nanousd=1)
        self.rig.later(LEASE_MS + 5 * SECOND)
        while self.rig.reap_caller():
            pass
        fields = self.rig.limit_fields()
        assert not any(name.endswith(":parallel") for name in fields)
        assert all(text.endswith("held=0") for text in fields.values() if "held" in text)
        self.rig.later(2 * WINDOW_MS)
        taken = self.rig.taken(*SCOPES)
        assert [n for n, count in taken.items() if count and not n.endswith("max_budget")] == []
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
