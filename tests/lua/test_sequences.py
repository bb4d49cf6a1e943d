"""Any sequence of calls: the scripts do what the reference does, and leave nothing behind."""

from __future__ import annotations

import re
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

from gateway.core.prompt import Prompt
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from tests.lua.model import Claim, Model
from tests.lua.rig import CALLER, LEASE_MS, Rig, prompt
from tests.lua.test_admit_draw import numbers
from tests.redis_servers import RedisServer, ScriptStore, script_store

LOCATIONS = ("a", "b", "c")
CANDIDATES = "a 1 b 1 c 1"
OTHER = "fedcba9876543210"
CALLERS = (CALLER, OTHER)
STEPS_MS = (1, 100, LEASE_MS - 1, LEASE_MS, 30_000, 120_000, 300_000, 700_000)

prompts = st.builds(
    prompt,
    st.sampled_from([0, 1_000, 60_000, 200_000, 300_000]),
    st.sampled_from([*CALLERS, CALLER, ""]),
    fingerprint=st.sampled_from(["", "f1", "f2"]),
)
draws = st.lists(numbers, min_size=5, max_size=5)


class Calls(RuleBasedStateMachine):
    """Replicas that claim, record, renew, die and return, in whatever order."""

    store: ScriptStore
    keys: Keys
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).runs += 1
        self.model_id = f"run-{self.runs}"
        self.rig = Rig(self.store, self.keys, self.model_id)
        self.rig.policy = Policy(cooldown_ms=30_000, pin_max_age_ms=900_000)
        self.model = Model(self.rig.policy, LOCATIONS, LEASE_MS)
        self.granted: dict[str, tuple[Claim, Prompt]] = {}
        self.epoch = 0

    def some_claim(self, data: st.DataObject) -> str:
        """One that was granted, whether it stands or not; or one that never was."""
        recent = [*self.granted, "never.1"][-3:]
        return data.draw(st.sampled_from(recent) | st.sampled_from([*self.granted, "never.1"]))

    def prompt_of(self, claim: str) -> Prompt:
        return self.granted[claim][1] if claim in self.granted else prompt()

    def at(self, claim: str) -> str:
        return self.granted[claim][0].location if claim in self.granted else "a"

    @rule(
        order=st.sampled_from(["draw", "draw", "expected_ttft", "declared"]), said=prompts, u=draws
    )
    def admit(self, order: str, said: Prompt, u: list[float]) -> None:
        how = {"u": u, "order": order, "prompt": said, "epoch": self.epoch}
        told = self.rig.explain(CANDIDATES, **how)
        self._admit(CANDIDATES, **how)
        location = list(self.granted.values())[-1][0].location if self.was_admitted else ""
        assert told.location == location, "explain has told it before"

    @rule(at=st.sampled_from(LOCATIONS), said=prompts)
    def admit_pinned_by_header(self, at: str, said: Prompt) -> None:
        self._admit(f"{at} 1", u=[], order="pinned", prompt=said, epoch=self.epoch)
        assert self.was_admitted

    def _admit(self, candidates: str, **how: object) -> None:
        claim = f"r.{len(self.granted)}"
        reply = self.rig.admit(claim, candidates, **how)
        said, order, u = how["prompt"], how["order"], how["u"]
        only = candidates.split(maxsplit=1)[0] if order == "pinned" else ""
        now = self.rig.now_ms
        held = self.model.admit(claim, now, prompt=said, order=order, u=u, only=only)
        self.was_admitted = held is not None
        assert reply.is_admitted == self.was_admitted
        if held:
            self.granted[claim] = (held, said)
            assert (reply.location, bool(reply.probe)) == (held.location, held.is_probe)
            assert (reply.tokens, bool(reply.elephant)) == (held.tokens, held.is_elephant)
            assert reply.inflight == self.model.inflight(reply.location)

    @rule()
    def admit_by_old_overrides(self) -> None:
        before = self.rig.state()
        assert self.rig.admit("stale.1", CANDIDATES, epoch=self.epoch + 1).is_stale
        assert self.rig.state() == before

    @rule(weight=st.sampled_from(["0.1", "0.2", ""]))
    def override(self, weight: str) -> None:
        self.epoch = self.rig.override("weight:a", weight)[1]

    @rule(data=st.data())
    def first_token(self, data: st.DataObject) -> None:
        claim = self.some_claim(data)
        said = self.prompt_of(claim)
        expected = self.model.first_token(claim, said, self.rig.now_ms)
        assert self.rig.first_token(claim, prompt=said).status == expected

    @rule(
        data=st.data(),
        outcome=st.sampled_from(["success", "failure", "failure", "neutral"]),
        unpin=st.booleans(),
    )
    def settle(self, data: st.DataObject, outcome: str, unpin: bool) -> None:
        claim = self.some_claim(data)
        at, how = self.at(claim), {"prompt": self.prompt_of(claim), "unpin": unpin}
        expected = self.model.settle(claim, at, outcome, self.rig.now_ms, **how)
        assert self.rig.settle(claim, outcome, at=at, **how).status == expected

    @rule(at=st.sampled_from(LOCATIONS))
    def fail_often(self, at: str) -> None:
        for _ in range(self.rig.policy.failure_threshold):
            self.admit_pinned_by_header(at, prompt(0, ""))
            claim = list(self.granted)[-1]
            how = {"prompt": self.prompt_of(claim), "unpin": False}
            self.rig.settle(claim, "failure", at=at, **how)
            self.model.settle(claim, at, "failure", self.rig.now_ms, **how)

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        claims = data.draw(st.lists(st.sampled_from([*self.granted, "never.1"]), unique=True))
        assert self.rig.renew(*claims) == self.model.renew(claims, self.rig.now_ms)

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def reassert(self, data: st.DataObject) -> None:
        """By a replica that believes its attempt to run still."""
        claim = data.draw(st.sampled_from([*self.granted][-3:]))
        held, said = self.granted[claim]
        status = self.rig.reassert(
            claim,
            held.location,
            first=int(held.first),
            tokens=held.tokens,
            elephant=int(held.is_elephant),
            caller=said.caller,
        )
        assert status == self.model.reassert(claim, held, self.rig.now_ms)

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

    @rule()
    def store_is_emptied(self) -> None:
        self.rig.client.delete(*self.every_key())
        self.model.forget()
        self.epoch = 0

    def every_key(self) -> set[str]:
        return {
            key for caller in CALLERS for key in self.keys.caller(self.model_id, caller).values()
        }

    def number(self, field: str) -> int:
        return int(self.rig.field(field) or 0)

    @invariant()
    def places_in_flight_are_the_open_claims(self) -> None:
        for at in LOCATIONS:
            assert self.number(f"{at}:inflight") == self.model.inflight(at)
        claims = self.rig.client.zrange(self.rig.keys["claims"], 0, -1)
        assert set(claims) == self.model.claims.keys()
        assert set(self.rig.client.hkeys(self.rig.keys["claimed"])) == set(claims)

    @invariant()
    def prefill_is_the_sum_over_the_open_claims(self) -> None:
        for at in LOCATIONS:
            assert self.number(f"{at}:prefill_tokens") == self.model.backlog(at)
            assert self.number(f"{at}:elephants") == self.model.elephants(at)
            for caller in CALLERS:
                assert self.number(f"{at}:own:{caller[:8]}") == self.model.own(at, caller)
        counts = re.compile(r".*:(inflight|prefill_tokens|elephants|own:.*)")
        for name, value in self.rig.fields().items():
            assert not counts.fullmatch(name) or int(value) > 0, "nothing is an absent field"

    @invariant()
    def pins_are_those_of_the_reference(self) -> None:
        for caller in CALLERS:
            pin = self.model.pins.get(caller)
            text = pin and f"location={pin.location} created_ms={pin.created} until_ms={pin.until}"
            assert self.rig.client.get(self.keys.caller(self.model_id, caller)["pin"]) == text

    @invariant()
    def hints_are_those_of_the_reference(self) -> None:
        for caller in CALLERS:
            found = self.rig.client.hgetall(self.keys.caller(self.model_id, caller)["hint"])
            assert found == {
                at: f"tokens={hint.tokens} until_ms={hint.until} generation={hint.generation} "
                f"fingerprint={hint.fingerprint} anchor="
                for (of, at), hint in self.model.hints.items()
                if of == caller
            }

    @invariant()
    def circuits_are_those_of_the_reference(self) -> None:
        for at in LOCATIONS:
            circuit, field = self.model.circuits[at], self.rig.field
            assert (field(f"{at}:circuit") or "closed") == circuit.state
            assert self.number(f"{at}:failures") == circuit.failures
            assert self.number(f"{at}:generation") == circuit.generation
            found = float(field(f"{at}:availability") or 1)
            assert found == pytest.approx(circuit.availability, abs=1e-6)

    @invariant()
    def probes_are_one_per_endpoint_and_of_a_claim_that_stands(self) -> None:
        for at in LOCATIONS:
            probe = self.rig.field(f"{at}:probe") or ""
            assert probe == self.model.circuits[at].probe
            assert not probe or self.model.claims[probe].location == at

    @invariant()
    def every_key_dies_but_the_overrides(self) -> None:
        ttls = self.rig.ttls()
        assert {kind for kind, ttl in ttls.items() if ttl < 0} <= {"epoch", "overrides"}

    def teardown(self) -> None:
        """In the end all is settled or reaped, and nothing is left in flight or in prefill."""
        for claim, (held, said) in list(self.granted.items())[::2]:
            self.rig.settle(claim, "success", at=held.location, prompt=said)
        self.rig.later(LEASE_MS + 5_000)
        while self.rig.reap():
            pass
        health = r".*:(generation|availability|failures|circuit|opened_at_ms|probe\w*)"
        kept = re.compile(rf"{health}|charge_tokens")
        assert {name for name in self.rig.fields() if not kept.fullmatch(name)} == set()
        assert self.rig.client.exists(self.rig.keys["claims"], self.rig.keys["claimed"]) == 0
        self.rig.client.delete(*self.every_key())


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[ScriptStore]:
    with script_store(redis_server) as store:
        yield store


def test_any_sequence_of_calls(store: ScriptStore, keys: Keys) -> None:
    machine = type("Sequence", (Calls,), {"store": store, "keys": keys})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=80,
            stateful_step_count=50,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
