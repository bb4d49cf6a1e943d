"""Any sequence of calls: the scripts do what the reference does, and leave nothing behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

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

from gateway.core.limits import EndpointLimits, Limit
from gateway.core.prompt import Prompt
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from tests.lua.limit_model import Needs
from tests.lua.limited import counting, limited
from tests.lua.model import Asked, Claim, Model
from tests.lua.rig import CALLER, LEASE_MS, MINUTE, Rig, prompt
from tests.lua.test_admit_draw import numbers
from tests.redis_servers import RedisServer, ScriptStore, script_store

LOCATIONS = ("a", "b", "c")
LIMITS = {
    "a": EndpointLimits(rpm=Limit(5), tpm=Limit(400_000), max_parallel_requests=Limit(3)),
    "b": EndpointLimits(
        itpm=Limit(400_000, is_fixed=True), otpm=Limit(4000), rpm=Limit(2, is_shadow=True)
    ),
    "c": EndpointLimits(
        rpm=Limit(6, is_fixed=True),
        tpm=Limit(200_000, is_fixed=True, is_shadow=True),
        otpm=Limit(3000, is_shadow=True),
        max_parallel_requests=Limit(1, is_shadow=True),
    ),
}
OTHER = "fedcba9876543210"
CALLERS = (CALLER, OTHER)
STEPS_MS = (1, 100, LEASE_MS - 1, LEASE_MS, 30_000, 60_000, 120_000, 300_000, 700_000)

prompts = st.builds(
    prompt,
    st.sampled_from([0, 1_000, 60_000, 200_000, 300_000]),
    st.sampled_from([*CALLERS, CALLER, ""]),
    fingerprint=st.sampled_from(["", "f1", "f2"]),
    output_tokens=st.sampled_from([0, 50, 2_000]),
)
tries = st.sampled_from([(), (), (), (), ("a",), ("a", "b"), ("c",)])
uses = st.sampled_from(["", "unsent", "0 0", "1000 40", "60000 900", "60000 9000", "500000 10"])
draws = st.lists(numbers, min_size=5, max_size=5)


class Calls(RuleBasedStateMachine):
    """Replicas that claim, record, renew, die and return, in whatever order."""

    store: ScriptStore
    keys: Keys
    limits: Mapping[str, EndpointLimits]
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).runs += 1
        self.model_id = f"run-{self.runs}"
        self.rig = Rig(self.store, self.keys, self.model_id)
        self.rig.policy = Policy(cooldown_ms=30_000, pin_max_age_ms=900_000)
        self.model = Model(self.rig.policy, LOCATIONS, LEASE_MS, self.limits)
        self.candidates = {
            at: limited(at, self.limits[at]) if self.limits else f"{at} 1" for at in LOCATIONS
        }
        self.granted: dict[str, tuple[Claim, Prompt]] = {}
        self.taken: dict[str, str] = {}
        """What `admit` has said that a claim has taken of limits."""
        self.ended: set[str] = set()
        self.charges: dict[str, tuple[int, str, Needs, Needs]] = {}
        """When a claim was granted and where, what it has reserved and what it has used of that."""
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
        order=st.sampled_from(["draw", "draw", "expected_ttft", "declared"]),
        said=prompts,
        u=draws,
        tried=tries,
    )
    def admit(self, order: str, said: Prompt, u: list[float], tried: tuple[str, ...]) -> None:
        candidates = " ".join(self.candidates.values())
        how = {"u": u, "order": order, "prompt": said, "tried": " ".join(tried)}
        told = self.rig.explain(candidates, epoch=self.epoch, **how)
        held = self._admit(candidates, Asked(said, order, u, tried))
        assert told.location == (held.location if held else ""), "explain has told it before"

    @rule(at=st.sampled_from(LOCATIONS), said=prompts)
    def admit_pinned_by_header(self, at: str, said: Prompt) -> None:
        held = self._admit(self.candidates[at], Asked(said, "pinned", only=at))
        assert held or self.limits

    def _admit(self, candidates: str, asked: Asked) -> Claim | None:
        claim = f"r.{len(self.granted)}"
        reply = self.rig.admit(
            claim,
            candidates,
            u=asked.u,
            order=asked.order,
            prompt=asked.prompt,
            tried=" ".join(asked.tried),
            epoch=self.epoch,
        )
        held = self.model.admit(claim, self.rig.now_ms, asked)
        assert reply.is_admitted == (held is not None)
        for at, reason in reply.passed_over().items() if held is None else ():
            refusals = self.model.refusals(at, self.model.clock(self.rig.now_ms), asked)
            assert reason in refusals
        if held:
            self.granted[claim], self.taken[claim] = (held, asked.prompt), reply.taken
            assert (reply.location, bool(reply.probe)) == (held.location, held.is_probe)
            assert (reply.tokens, bool(reply.elephant)) == (held.tokens, held.is_elephant)
            assert reply.inflight == self.model.inflight(reply.location)
        if held and reply.taken:
            needs = self.model.limited[held.location].taken[claim][0]
            now = self.model.clock(self.rig.now_ms)
            self.charges[claim] = now, held.location, needs, needs
        return held

    @rule()
    def admit_by_old_overrides(self) -> None:
        before = self.rig.state()
        assert self.rig.admit("stale.1", "a 1 b 1", epoch=self.epoch + 1).is_stale
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

    @rule(data=st.data(), is_queued=st.booleans())
    def queue(self, data: st.DataObject, is_queued: bool) -> None:
        claim = self.some_claim(data)
        expected = self.model.queue(claim, is_queued=is_queued)
        assert self.rig.run("queue", claim=claim, queued=int(is_queued)) == [expected]

    @rule(
        data=st.data(),
        outcome=st.sampled_from(["success", "failure", "failure", "neutral"]),
        unpin=st.booleans(),
        used=uses,
    )
    def settle(self, data: st.DataObject, outcome: str, unpin: bool, used: str) -> None:
        claim = self.some_claim(data)
        at, said = self.at(claim), self.prompt_of(claim)
        how = {"prompt": said, "unpin": unpin and bool(said.caller), "used": used}
        expected = self.model.settle(claim, at, outcome, self.rig.now_ms, **how)
        how["taken"] = self.taken.get(claim, "")
        assert self.rig.settle(claim, outcome, at=at, **how).status == expected
        if expected != "gone":
            self.ended.add(claim)
        if expected != "gone" and claim in self.charges:
            when, _, needs, _ = self.charges.pop(claim)
            if used != "unsent":
                spent = Needs(*map(int, used.split())) if used else needs
                self.charges[claim] = when, at, needs, spent

    @rule(at=st.sampled_from(LOCATIONS))
    def fail_often(self, at: str) -> None:
        for _ in range(self.rig.policy.failure_threshold):
            asked = Asked(prompt(0, ""), "pinned", only=at, ignores_limits=True)
            assert self._admit(f"{at} 1", asked)
            claim = list(self.granted)[-1]
            how = {"prompt": self.prompt_of(claim), "unpin": False}
            self.rig.settle(claim, "failure", at=at, **how)
            self.model.settle(claim, at, "failure", self.rig.now_ms, **how)

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        claims = data.draw(st.lists(st.sampled_from([*self.granted, "never.1"]), unique=True))
        assert self.rig.renew(*claims) == self.model.renew(claims, self.rig.now_ms)

    def running(self) -> list[str]:
        """What a replica may believe to run; where there are limits, what may be corrected once."""
        return [claim for claim in self.granted if not self.limits or claim not in self.ended]

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def reassert(self, data: st.DataObject) -> None:
        """By a replica that believes its attempt to run still."""
        claim = data.draw(st.sampled_from(self.running()[-3:]))
        held, said = self.granted[claim]
        status = self.rig.reassert(
            claim,
            held.location,
            first=int(held.first),
            tokens=held.load,
            elephant=int(held.is_elephant and not held.is_queued),
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

    @precondition(lambda self: not self.limits)
    @rule()
    def store_is_emptied(self) -> None:
        self.rig.client.delete(*self.every_key())
        self.model.forget()
        self.epoch = 0

    def every_key(self) -> set[str]:
        return {
            key for caller in CALLERS for key in self.keys.caller(self.model_id, caller).values()
        }

    @invariant()
    def what_is_kept_of_endpoints_is_what_the_reference_sums_up(self) -> None:
        self.row = self.rig.fields()
        self.places_in_flight_are_the_open_claims()
        self.prefill_is_the_sum_over_the_open_claims()
        self.circuits_are_those_of_the_reference()
        self.probes_are_one_per_endpoint_and_of_a_claim_that_stands()
        self.what_is_taken_of_limits_is_what_was_charged()

    def number(self, field: str) -> int:
        return int(self.row.get(field, 0))

    def places_in_flight_are_the_open_claims(self) -> None:
        for at in LOCATIONS:
            assert self.number(f"{at}:inflight") == self.model.inflight(at)
        claims = self.rig.client.zrange(self.rig.keys["claims"], 0, -1)
        assert set(claims) == self.model.claims.keys()
        assert set(self.rig.client.hkeys(self.rig.keys["claimed"])) == set(claims)

    def prefill_is_the_sum_over_the_open_claims(self) -> None:
        for at in LOCATIONS:
            assert self.number(f"{at}:prefill_tokens") == self.model.backlog(at)
            assert self.number(f"{at}:elephants") == self.model.elephants(at)
            for caller in CALLERS:
                assert self.number(f"{at}:own:{caller[:8]}") == self.model.own(at, caller)
        counts = re.compile(r".*:(inflight|prefill_tokens|elephants|own:.*)")
        for name, value in self.row.items():
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

    def circuits_are_those_of_the_reference(self) -> None:
        for at in LOCATIONS:
            circuit, field = self.model.circuits[at], self.row.get
            assert (field(f"{at}:circuit") or "closed") == circuit.state
            assert self.number(f"{at}:failures") == circuit.failures
            assert self.number(f"{at}:generation") == circuit.generation
            found = float(field(f"{at}:availability") or 1)
            assert found == pytest.approx(circuit.availability, abs=1e-6)

    def what_is_taken_of_limits_is_what_was_charged(self) -> None:
        now = self.model.clock(self.rig.now_ms)
        for at, one in self.model.limited.items():
            for kind, window in one.windows.items():
                text = self.row.get(f"{at}:{kind}", "")
                assert counting(text, now) == window.taken(now), (at, kind)
                assert "-" not in text, "nothing is less than none"
            for kind in ("rpm", "tpm", "itpm", "otpm", "parallel"):
                assert self.number(f"{at}:would_refuse_{kind}") == one.would_refuse[kind]
        assert self.row.get("output_tokens") == (
            None if self.model.usual_output is None else f"{self.model.usual_output:.1f}"
        )

    @invariant()
    def no_limit_is_exceeded_by_what_was_reserved(self) -> None:
        """Of a claim that has used more only as much as it had reserved counts here."""
        now = self.model.clock(self.rig.now_ms)
        recent = [charge for charge in self.charges.values() if now - MINUTE < charge[0] <= now]
        for at, kind in (("a", "rpm"), ("a", "tpm"), ("b", "otpm")) if self.limits else ():
            held = [
                min(needs.of(kind), spent.of(kind)) for _, of, needs, spent in recent if of == at
            ]
            assert sum(held) <= getattr(self.limits[at], kind).most

    def probes_are_one_per_endpoint_and_of_a_claim_that_stands(self) -> None:
        for at in LOCATIONS:
            probe = self.row.get(f"{at}:probe", "")
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
        for _ in range(2):  # a lease given before the clock stepped back is shortened first
            self.rig.later(LEASE_MS + 5_000)
            while self.rig.reap():
                pass
        health = r".*:(generation|availability|failures|circuit|opened_at_ms|probe\w*)"
        of_limits = r".*:([rtio]*pm|would_refuse_\w+)|output_tokens"
        kept = re.compile(rf"{health}|{of_limits}|charge_tokens")
        assert {name for name in self.rig.fields() if not kept.fullmatch(name)} == set()
        assert self.rig.client.exists(self.rig.keys["claims"], self.rig.keys["claimed"]) == 0
        self.rig.client.delete(*self.every_key())


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[ScriptStore]:
    with script_store(redis_server) as store:
        yield store


@pytest.mark.parametrize("limits", [{}, LIMITS], ids=["without limits", "with limits"])
def test_any_sequence_of_calls(
    store: ScriptStore, keys: Keys, limits: Mapping[str, EndpointLimits]
) -> None:
    machine = type("Sequence", (Calls,), {"store": store, "keys": keys, "limits": limits})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=50,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
