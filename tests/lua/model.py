"""The reference: what the scripts must do to one model's state, in plain Python.

It knows nothing of Redis, and counts by summing up over claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.core.limits import EndpointLimits
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.state.policy import Policy
from tests.lua import scoring
from tests.lua.drawing import Endpoint, Instance, by_numbers
from tests.lua.limit_model import UNKNOWN_OUTPUT, Limited, RetryBudget
from tests.lua.rig import PIN_MS

TOMBSTONE_MS = 600_000
ADMISSION_REAPS = 4
RATE = 8_000
"""Of all endpoints, in tokens/s."""


@dataclass(frozen=True)
class Asked:
    """What an attempt asks for."""

    prompt: Prompt = NO_PROMPT
    order: str = "draw"
    u: Sequence[float] = ()
    tried: tuple[str, ...] = ()
    only: str = ""
    """The one candidate, if there is but one."""
    ignores_limits: bool = False
    """By a replica whose configuration has none."""


@dataclass
class Claim:
    location: str
    deadline: int
    caller: str = ""
    tokens: int = 0
    """In prefill; none after the first output."""
    is_elephant: bool = False
    is_queued: bool = False
    """In line, where it is no load yet."""
    first: bool = False
    is_probe: bool = False

    @property
    def load(self) -> int:
        return 0 if self.is_queued else self.tokens

    def end_prefill(self) -> None:
        self.first, self.tokens, self.is_elephant, self.is_queued = True, 0, False, False


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
    limits: Mapping[str, EndpointLimits] = field(default_factory=dict)
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
    usual_output: float | None = None
    """Of answers, as far as that was learned."""
    limited: dict[str, Limited] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.circuits = {at: Circuit() for at in self.locations}
        window = self.policy.window_ms
        self.limited = {at: Limited(limits, window) for at, limits in self.limits.items()}
        self.retries = RetryBudget(self.policy.retry_percent, self.policy.retry_floor)

    def clock(self, now: int) -> int:
        return self.at_ms if now < self.at_ms < now + 5_000 else now

    def standing(self, at: str) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.location == at]

    def inflight(self, at: str) -> int:
        return len(self.standing(at))

    def backlog(self, at: str) -> int:
        return sum(claim.load for claim in self.standing(at))

    def elephants(self, at: str) -> int:
        return sum(claim.is_elephant and not claim.is_queued for claim in self.standing(at))

    def own(self, at: str, caller: str) -> int:
        return sum(claim.load for claim in self.standing(at) if claim.caller == caller)

    def refusals(self, at: str, now: int, asked: Asked) -> list[str]:
        """For which reason an endpoint may not be used; of limits, for which ones."""
        circuit = self.circuits[at]
        if at in asked.tried:
            return ["already_attempted"]
        if asked.tried and not self.retries.allows(now):
            return ["retry_budget"]
        if not asked.only:
            if circuit.state == "open" and now < circuit.opened_at + self.policy.cooldown_ms:
                return ["circuit_open"]
            if circuit.state == "half_open" and circuit.probe and now < circuit.probe_until:
                return ["probe_in_flight"]
        if at not in self.limited or asked.ignores_limits:
            return []
        needs = self.limited[at].needs(asked.prompt, self.usual_output)
        return self.limited[at].refusals(needs, self.inflight(at), now)

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

    def admit(self, claim: str, now: int, asked: Asked) -> Claim | None:
        """The claim that is granted; none when it is refused."""
        now, prompt, only = self.clock(now), asked.prompt, asked.only
        self.reap(now, ADMISSION_REAPS)
        compared = self._rated(now, asked) if asked.order == "expected_ttft" else {}
        at = self._chosen(now, asked)
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
        if asked.order == "draw" and prompt.caller:
            is_kept = self.pinned(prompt.caller, now) and self.instance(now, asked).kept
            created = self.pins[prompt.caller].created if is_kept else now
            until = min(now + PIN_MS, created + self.policy.pin_max_age_ms)
            self.pins[prompt.caller] = Pin(at, created, until)
        if at in self.limited and not asked.ignores_limits:
            needs = self.limited[at].needs(prompt, self.usual_output)
            self.limited[at].take(claim, needs, self.inflight(at), now)
        if not only:
            self.retries.count(now, is_first=not asked.tried)
        self.claims[claim] = held
        self.at_ms = now
        return held

    def _chosen(self, now: int, asked: Asked) -> str | None:
        if asked.only:
            return asked.only if not self.refusals(asked.only, now, asked) else None
        if asked.order == "declared":
            return next((at for at in self.locations if not self.refusals(at, now, asked)), None)
        if asked.order == "expected_ttft":
            rated, tokens = self._rated(now, asked), asked.prompt.tokens
            found = scoring.scores(rated, tokens, self.usual_charge, RATE) if rated else {}
            return scoring.chosen(rated, found, asked.u[0]) if rated else None
        return by_numbers(self.instance(now, asked), asked.u)[0]

    def _rated(self, now: int, asked: Asked) -> dict[str, scoring.Rated]:
        """What is compared, of those that may be used. No rate is known."""
        prompt = asked.prompt
        return {
            at: scoring.Rated(
                backlog=self.backlog(at),
                own=self.own(at, prompt.caller) if prompt.caller else 0,
                uncached=self.uncached(at, prompt, now, fingerprint=prompt.fingerprint),
            )
            for at in self.locations
            if not self.refusals(at, now, asked)
        }

    def instance(self, now: int, asked: Asked) -> Instance:
        """What a draw has before it."""
        prompt = asked.prompt
        endpoints = {
            at: Endpoint(
                is_blocked=bool(self.refusals(at, now, asked)),
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

    def queue(self, claim: str, *, is_queued: bool) -> str:
        held = self.claims.get(claim)
        if held is None:
            return "gone"
        if held.first or held.is_queued == is_queued:
            return "again"
        held.is_queued = is_queued
        return "done"

    def settle(
        self,
        claim: str,
        at: str,
        outcome: str,
        now: int,
        *,
        prompt: Prompt,
        unpin: bool,
        used: str = "",
    ) -> str:
        now = self.clock(now)
        held = self.claims.get(claim)
        if held:
            status, counted = "done", held.first
            self._release(claim)
        elif now < self.tombstones.get(claim, (0,))[0] <= now + TOMBSTONE_MS:
            status, counted = "late", self.tombstones.pop(claim)[1]
        else:
            return "gone"
        self.at_ms = now
        counts_tokens = at in self.limited and self.limited[at].settle(claim, used, now)
        if outcome == "success" and counts_tokens and used not in ("", "unsent"):
            self._learn(int(used.split()[1]))
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
        if held.is_queued:  # nobody puts its prompt back
            held.is_queued, held.tokens, held.is_elephant = False, 0, False
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
        latest = sorted((held.deadline, claim) for claim, held in self.claims.items())[-limit:]
        for deadline, claim in latest:  # one further away than its lease is of a clock set back
            self.claims[claim].deadline = min(deadline, now + self.lease_ms)
        return len(due)

    def forget(self) -> None:
        """The store was emptied."""
        self.__init__(self.policy, self.locations, self.lease_ms, self.limits)  # type: ignore[misc]

    def _learn(self, output: int) -> None:
        if output:
            usual = UNKNOWN_OUTPUT if self.usual_output is None else self.usual_output
            usual += (output - usual) / (4 if output > usual else 100)
            self.usual_output = float(f"{usual:.1f}")

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
