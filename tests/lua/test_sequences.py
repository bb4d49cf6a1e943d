"""Any sequence of calls: the scripts do what the reference does, and leave nothing behind."""

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

from gateway.state.keys import Keys
from gateway.state.store import Policy
from tests.lua.model import Model
from tests.lua.rig import LEASE_MS, Rig
from tests.redis_servers import RedisServer, ScriptStore, script_store

LOCATIONS = ("a", "b", "c")
CANDIDATES = "a 1 b 1 c 1"
STEPS_MS = (1, 100, LEASE_MS - 1, LEASE_MS, 30_000, 120_000, 700_000)


class Calls(RuleBasedStateMachine):
    """Replicas that claim, record, renew, die and return, in whatever order."""

    store: ScriptStore
    keys: Keys
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).runs += 1
        self.rig = Rig(self.store, self.keys, f"run-{self.runs}")
        self.rig.policy = Policy(cooldown_ms=30_000)
        self.model = Model(self.rig.policy, LOCATIONS, LEASE_MS)
        self.granted: dict[str, str] = {}

    def some_claim(self, data: st.DataObject) -> str:
        """One that was granted, whether it stands or not; or one that never was."""
        recent = [*self.granted, "never.1"][-3:]
        return data.draw(st.sampled_from(recent) | st.sampled_from([*self.granted, "never.1"]))

    @rule(pinned=st.sampled_from(["", "", *LOCATIONS]))
    def admit(self, pinned: str) -> None:
        claim = f"r.{len(self.granted)}"
        reply = self.rig.admit(
            claim,
            f"{pinned} 1" if pinned else CANDIDATES,
            order="pinned" if pinned else "declared",
        )
        assert (reply.location, bool(reply.probe)) == self.model.admit(
            claim, self.rig.now_ms, pinned=pinned
        )
        if reply.is_admitted:
            self.granted[claim] = reply.location
            assert reply.inflight == self.model.inflight(reply.location)

    @rule(data=st.data())
    def first_token(self, data: st.DataObject) -> None:
        claim = self.some_claim(data)
        assert self.rig.first_token(claim).status == self.model.first_token(claim)

    @rule(data=st.data(), outcome=st.sampled_from(["success", "failure", "failure", "neutral"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        claim = self.some_claim(data)
        at = self.granted.get(claim, "a")
        said = self.rig.settle(claim, outcome, at=at)
        assert said.status == self.model.settle(claim, at, outcome, self.rig.now_ms)

    @rule(at=st.sampled_from(LOCATIONS))
    def fail_often(self, at: str) -> None:
        for _ in range(self.rig.policy.failure_threshold):
            claim = f"r.{len(self.granted)}"
            self.rig.admit(claim, f"{at} 1", order="pinned")
            self.model.admit(claim, self.rig.now_ms, pinned=at)
            self.granted[claim] = at
            self.rig.settle(claim, "failure", at=at)
            self.model.settle(claim, at, "failure", self.rig.now_ms)

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        claims = data.draw(st.lists(st.sampled_from([*self.granted, "never.1"]), unique=True))
        assert self.rig.renew(*claims) == self.model.renew(claims, self.rig.now_ms)

    @rule(limit=st.sampled_from([1, 128]))
    def reap(self, limit: int) -> None:
        assert self.rig.reap(limit) == self.model.reap(self.rig.now_ms, limit)

    @rule(ms=st.sampled_from(STEPS_MS))
    def wait(self, ms: int) -> None:
        self.rig.later(ms)

    @precondition(lambda self: self.rig.now_ms - 2_000 > self.model.at_ms - 5_000)
    @rule()
    def clock_steps_back_a_little(self) -> None:
        self.rig.later(-2_000)

    @invariant()
    def places_in_flight_are_the_open_claims(self) -> None:
        for at in LOCATIONS:
            assert int(self.rig.field(f"{at}:inflight") or 0) == self.model.inflight(at)
        claims = self.rig.client.zrange(self.rig.keys["claims"], 0, -1)
        assert set(claims) == self.model.claims.keys()
        assert set(self.rig.client.hkeys(self.rig.keys["claimed"])) == set(claims)

    @invariant()
    def circuits_are_those_of_the_reference(self) -> None:
        for at in LOCATIONS:
            circuit, field = self.model.circuits[at], self.rig.field
            assert (field(f"{at}:circuit") or "closed") == circuit.state
            assert int(field(f"{at}:failures") or 0) == circuit.failures
            found = float(field(f"{at}:availability") or 1)
            assert found == pytest.approx(circuit.availability, abs=1e-6)

    @invariant()
    def probes_are_one_per_endpoint_and_of_a_claim_that_stands(self) -> None:
        for at in LOCATIONS:
            probe = self.rig.field(f"{at}:probe") or ""
            assert probe == self.model.circuits[at].probe
            assert not probe or self.model.claims[probe].location == at

    @invariant()
    def every_key_dies(self) -> None:
        assert all(ttl > 0 for ttl in self.rig.ttls().values())

    def teardown(self) -> None:
        """In the end all is settled or reaped, and nothing is left in flight."""
        for claim, at in list(self.granted.items())[::2]:
            self.rig.settle(claim, "success", at=at)
        self.rig.later(LEASE_MS + 5_000)
        while self.rig.reap():
            pass
        left = {name: value for name, value in self.rig.fields().items() if "inflight" in name}
        assert left == {}
        assert self.rig.client.exists(self.rig.keys["claims"], self.rig.keys["claimed"]) == 0


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[ScriptStore]:
    with script_store(redis_server) as store:
        yield store


def test_any_sequence_of_calls(store: ScriptStore, keys: Keys) -> None:
    machine = type("Sequence", (Calls,), {"store": store, "keys": keys})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
