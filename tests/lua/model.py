"""The reference: what the scripts must do to one model's state, in plain Python.

It knows nothing of Redis, and counts by summing up over claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.core.prompt import Prompt
from gateway.state.policy import Policy
from tests.lua import scoring
from tests.lua.drawing import Endpoint, Instance, by_numbers
from tests.lua.rig import PIN_MS

TOMBSTONE_MS = 600_000
ADMISSION_REAPS = 4
RATE = 8_000
"""Of all endpoints, in tokens/s."""


@dataclass
class Claim:
    location: str
    deadline: int
    caller: str = ""
    tokens: int = 0
    """In prefill; none after the first output."""
    is_elephant: bool = False
    first: bool = False
    is_probe: bool = False

    def end_prefill(self) -> None:
        self.first, self.tokens, self.is_elephant = True, 0, False


@dataclass
class Circuit:
    state: str = "closed"
    failures: int = 0
    availability: float = 1.0
    opened_at: int = 0
    probe: str = ""
    probe_until: int = 0
    generation: int = 0


@dataclass
class Hint:
    tokens: int
    until: int
    generation: int
    fingerprint: str


@dataclass
class Pin:
    location: str
    created: int
    until: int


@dataclass
class Model:
    """One model's endpoints. Every method takes the time at which it happens."""

    policy: Policy
    locations: tuple[str, ...]
    lease_ms: int
    claims: dict[str, Claim] = field(default_factory=dict)
    tombstones: dict[str, tuple[int, bool]] = field(default_factory=dict)
    circuits: dict[str, Circuit] = field(default_factory=dict)
    hints: dict[tuple[str, str], Hint] = field(default_factory=dict)
    """By caller and location; also those that are void."""
    pins: dict[str, Pin] = field(default_factory=dict)
    """By caller; also those that are void."""
    at_ms: int = 0
    """When something was last decided: a clock a little behind that stands still."""
    usual_charge: float | None = None
    """In prefill, of those that were compared for."""

    def __post_init__(self) -> None:
        self.circuits = {at: Circuit() for at in self.locations}

    def clock(self, now: int) -> int:
        return self.at_ms if now < self.at_ms < now + 5_000 else now

    def standing(self, at: str) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.location == at]

    def inflight(self, at: str) -> int:
        return len(self.standing(at))

    def backlog(self, at: str) -> int:
        return sum(claim.tokens for claim in self.standing(at))

    def elephants(self, at: str) -> int:
        return sum(claim.is_elephant for claim in self.standing(at))

    def own(self, at: str, caller: str) -> int:
        return sum(claim.tokens for claim in self.standing(at) if claim.caller == caller)

    def refusal(self, at: str, now: int) -> str:
        """Why an endpoint may not be used; empty when it may."""
        circuit = self.circuits[at]
        if circuit.state == "open" and now < circuit.opened_at + self.policy.cooldown_ms:
            return "circuit_open"
        if circuit.state == "half_open" and circuit.probe and now < circuit.probe_until:
            return "probe_in_flight"
        return ""

    def uncached(self, at: str, prompt: Prompt, now: int, *, fingerprint: str = "") -> int:
        """Tokens to be prefilled there, believing only hints of a conversation if one is named."""
        hint = self.hints.get((prompt.caller, at))
        is_good = (
            hint is not None
            and bool(prompt.caller)
            and now < hint.until <= now + self.policy.hint_ttl_ms
            and hint.generation == self.circuits[at].generation
            and fingerprint in ("", hint.fingerprint)
        )
        return max(prompt.tokens - hint.tokens, 0) if hint and is_good else prompt.tokens

    def pinned(self, caller: str, now: int) -> str:
        """Where a caller stays, if its pin stands."""
        pin = self.pins.get(caller)
        stands = pin and pin.created <= now < pin.until <= now + PIN_MS
        return pin.location if pin and stands else ""

    def admit(
        self,
        claim: str,
        now: int,
        *,
        prompt: Prompt,
        order: str,
        u: Sequence[float],
        only: str = "",
    ) -> Claim | None:
        """The claim that is granted; none when it is refused. `only` is the one candidate."""
        now = self.clock(now)
        self.reap(now, ADMISSION_REAPS)
        compared = self._rated(now, prompt) if order == "expected_ttft" else {}
        at = only or self._chosen(now, prompt, order, u)
        if not at:
            return None
        circuit = self.circuits[at]
        held = Claim(at, now + self.lease_ms, prompt.caller)
        held.tokens = self.uncached(at, prompt, now)
        if compared:
            held.tokens = scoring.charge(compared[at], prompt.tokens)
        if compared and held.tokens:
            usual = self.usual_charge or held.tokens
            self.usual_charge = float(f"{usual + (held.tokens - usual) / 50:.1f}")
        strict = self.uncached(at, prompt, now, fingerprint=prompt.fingerprint)
        held.is_elephant = strict >= self.policy.elephant_tokens
        held.is_probe = not only and circuit.state != "closed"
        if held.is_probe:
            circuit.state, circuit.probe = "half_open", claim
            circuit.probe_until = now + self.policy.cooldown_ms
        if order == "draw" and prompt.caller:
            is_kept = self.pinned(prompt.caller, now) and self.instance(now, prompt).kept
            created = self.pins[prompt.caller].created if is_kept else now
            until = min(now + PIN_MS, created + self.policy.pin_max_age_ms)
            self.pins[prompt.caller] = Pin(at, created, until)
        self.claims[claim] = held
        self.at_ms = now
        return held

    def _chosen(self, now: int, prompt: Prompt, order: str, u: Sequence[float]) -> str | None:
        if order == "declared":
            return next((at for at in self.locations if not self.refusal(at, now)), None)
        if order == "expected_ttft":
            rated = self._rated(now, prompt)
            found = scoring.scores(rated, prompt.tokens, self.usual_charge, RATE) if rated else {}
            return scoring.chosen(rated, found, u[0]) if rated else None
        return by_numbers(self.instance(now, prompt), u)[0]

    def _rated(self, now: int, prompt: Prompt) -> dict[str, scoring.Rated]:
        """What is compared, of those that may be used. No rate is known."""
        return {
            at: scoring.Rated(
                backlog=self.backlog(at),
                own=self.own(at, prompt.caller) if prompt.caller else 0,
                uncached=self.uncached(at, prompt, now, fingerprint=prompt.fingerprint),
            )
            for at in self.locations
            if not self.refusal(at, now)
        }

    def instance(self, now: int, prompt: Prompt) -> Instance:
        """What a draw has before it."""
        endpoints = {
            at: Endpoint(
                is_blocked=bool(self.refusal(at, now)),
                backlog=self.backlog(at),
                own=self.own(at, prompt.caller) if prompt.caller else 0,
                elephants=self.elephants(at),
                uncached=self.uncached(at, prompt, now),
            )
            for at in self.locations
        }
        pinned = self.pinned(prompt.caller, now) if prompt.caller else ""
        return Instance(endpoints, self.policy, pinned=pinned)

    def first_token(self, claim: str, prompt: Prompt, now: int) -> str:
        held = self.claims.get(claim)
        if held is None:
            return "gone"
        if held.first:
            return "again"
        held.end_prefill()
        self._success(held.location, prompt, self.clock(now))
        return "done"

    def settle(
        self, claim: str, at: str, outcome: str, now: int, *, prompt: Prompt, unpin: bool
    ) -> str:
        now = self.clock(now)
        held = self.claims.get(claim)
        if held:
            status, counted = "done", held.first
            self._release(claim)
        elif claim in self.tombstones and now < self.tombstones[claim][0]:
            status, counted = "late", self.tombstones.pop(claim)[1]
        else:
            return "gone"
        self.at_ms = now
        pin = self.pins.get(prompt.caller)
        if unpin and pin and pin.location == at:
            del self.pins[prompt.caller]
        if outcome == "success" and not counted:
            self._success(at, prompt, now)
        elif outcome == "failure":
            self._failure(at, now)
        return status

    def renew(self, claims: list[str], now: int) -> list[str]:
        now = self.clock(now)
        for claim in claims:
            if claim in self.claims:
                self.claims[claim].deadline = now + self.lease_ms
        return [claim for claim in claims if claim not in self.claims]

    def reassert(self, claim: str, held: Claim, now: int) -> str:
        if claim in self.claims:
            return "again"
        self.at_ms = held.deadline = self.clock(now)
        held.deadline += self.lease_ms
        self.claims[claim] = held
        self.tombstones.pop(claim, None)
        return "done"

    def reap(self, now: int, limit: int) -> int:
        now = self.clock(now)
        due = sorted(
            (held.deadline, claim) for claim, held in self.claims.items() if held.deadline <= now
        )[:limit]
        for _, claim in due:
            self.tombstones[claim] = (now + TOMBSTONE_MS, self.claims[claim].first)
            self._release(claim)
        return len(due)

    def forget(self) -> None:
        """The store was emptied."""
        self.__init__(self.policy, self.locations, self.lease_ms)  # type: ignore[misc]

    def _release(self, claim: str) -> None:
        circuit = self.circuits[self.claims.pop(claim).location]
        if circuit.probe == claim:
            circuit.probe = ""

    def _success(self, at: str, prompt: Prompt, now: int) -> None:
        circuit, alpha = self.circuits[at], self.policy.ewma_alpha
        circuit.availability = (1 - alpha) * circuit.availability + alpha
        circuit.state, circuit.failures, circuit.probe = "closed", 0, ""
        if prompt.caller and prompt.tokens:
            self.hints[prompt.caller, at] = Hint(
                prompt.tokens,
                now + self.policy.hint_ttl_ms,
                circuit.generation,
                prompt.fingerprint,
            )

    def _failure(self, at: str, now: int) -> None:
        circuit, alpha = self.circuits[at], self.policy.ewma_alpha
        circuit.availability *= 1 - alpha
        circuit.failures += 1
        circuit.generation += 1
        if (
            circuit.failures >= self.policy.failure_threshold
            or circuit.availability < self.policy.min_availability
        ):
            circuit.state, circuit.opened_at = "open", now
