"""The reference: what the scripts must do to one model's claims and circuits, in plain Python.

It knows nothing of Redis, and judges by filtering first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.state.store import Policy

TOMBSTONE_MS = 600_000
ADMISSION_REAPS = 4


@dataclass
class Claim:
    location: str
    deadline: int
    first: bool = False


@dataclass
class Circuit:
    state: str = "closed"
    failures: int = 0
    availability: float = 1.0
    opened_at: int = 0
    probe: str = ""
    probe_until: int = 0


@dataclass
class Model:
    """One model's endpoints. Every method takes the time at which it happens."""

    policy: Policy
    locations: tuple[str, ...]
    lease_ms: int
    claims: dict[str, Claim] = field(default_factory=dict)
    tombstones: dict[str, tuple[int, bool]] = field(default_factory=dict)
    circuits: dict[str, Circuit] = field(default_factory=dict)
    at_ms: int = 0
    """When something was last decided: a clock a little behind that stands still."""

    def __post_init__(self) -> None:
        self.circuits = {at: Circuit() for at in self.locations}

    def clock(self, now: int) -> int:
        return self.at_ms if now < self.at_ms < now + 5_000 else now

    def inflight(self, at: str) -> int:
        return sum(claim.location == at for claim in self.claims.values())

    def refusal(self, at: str, now: int) -> str:
        """Why an endpoint may not be used; empty when it may."""
        circuit = self.circuits[at]
        if circuit.state == "open" and now < circuit.opened_at + self.policy.cooldown_ms:
            return "circuit_open"
        if circuit.state == "half_open" and circuit.probe and now < circuit.probe_until:
            return "probe_in_flight"
        return ""

    def admit(self, claim: str, now: int, *, pinned: str = "") -> tuple[str, bool]:
        """The first admissible location and whether it is a probe; `("", False)` when refused."""
        now = self.clock(now)
        self.reap(now, ADMISSION_REAPS)
        for at in (pinned,) if pinned else self.locations:
            if pinned or not self.refusal(at, now):
                circuit = self.circuits[at]
                probe = not pinned and circuit.state != "closed"
                if probe:
                    circuit.state, circuit.probe = "half_open", claim
                    circuit.probe_until = now + self.policy.cooldown_ms
                self.claims[claim] = Claim(at, now + self.lease_ms)
                self.at_ms = now
                return at, probe
        return "", False

    def first_token(self, claim: str) -> str:
        held = self.claims.get(claim)
        if held is None:
            return "gone"
        if held.first:
            return "again"
        held.first = True
        self._success(held.location)
        return "done"

    def settle(self, claim: str, at: str, outcome: str, now: int) -> str:
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
        if outcome == "success" and not counted:
            self._success(at)
        elif outcome == "failure":
            self._failure(at, now)
        return status

    def renew(self, claims: list[str], now: int) -> list[str]:
        now = self.clock(now)
        for claim in claims:
            if claim in self.claims:
                self.claims[claim].deadline = now + self.lease_ms
        return [claim for claim in claims if claim not in self.claims]

    def reap(self, now: int, limit: int) -> int:
        now = self.clock(now)
        due = sorted(
            (held.deadline, claim) for claim, held in self.claims.items() if held.deadline <= now
        )[:limit]
        for _, claim in due:
            self.tombstones[claim] = (now + TOMBSTONE_MS, self.claims[claim].first)
            self._release(claim)
        return len(due)

    def _release(self, claim: str) -> None:
        circuit = self.circuits[self.claims.pop(claim).location]
        if circuit.probe == claim:
            circuit.probe = ""

    def _success(self, at: str) -> None:
        circuit, alpha = self.circuits[at], self.policy.ewma_alpha
        circuit.availability = (1 - alpha) * circuit.availability + alpha
        circuit.state, circuit.failures, circuit.probe = "closed", 0, ""

    def _failure(self, at: str, now: int) -> None:
        circuit, alpha = self.circuits[at], self.policy.ewma_alpha
        circuit.availability *= 1 - alpha
        circuit.failures += 1
        if (
            circuit.failures >= self.policy.failure_threshold
            or circuit.availability < self.policy.min_availability
        ):
            circuit.state, circuit.opened_at = "open", now
