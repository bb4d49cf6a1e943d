"""The reference for the limits of endpoints and for the budget of failover, in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msgspec import Struct

from gateway.core.limits import EndpointLimits, Limit
from gateway.core.prompt import Prompt
from tests.lua.caller_model import Window

WINDOWS = ("rpm", "tpm", "itpm", "otpm")
UNKNOWN_OUTPUT = 1024
HALF_MS = 30_000


class Needs(Struct, frozen=True):
    """What a request is taken to need of an endpoint's limits, in tokens."""

    input: int
    output: int

    def of(self, kind: str) -> int:
        tokens = {"tpm": self.input + self.output, "itpm": self.input, "otpm": self.output}
        return tokens.get(kind, 1)


@dataclass
class Limited:
    """The limits of one endpoint."""

    limits: EndpointLimits
    length: int
    would_refuse: Counter[str] = field(default_factory=Counter)
    taken: dict[str, tuple[Needs, list[str]]] = field(default_factory=dict)
    """By claim: what it was taken to need, and what has been taken of."""
    windows: dict[str, Window] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind in WINDOWS:
            if limit := getattr(self.limits, kind):
                self.windows[kind] = Window(limit, self.length)

    def needs(self, prompt: Prompt, usual: float | None) -> Needs:
        most = prompt.output_tokens
        if most:
            return Needs(prompt.tokens, min(most, int(usual or most)))
        counted = [limit.most // 4 for limit in (self.limits.tpm, self.limits.otpm) if limit]
        return Needs(prompt.tokens, max(min([int(usual or UNKNOWN_OUTPUT), *counted]), 1))

    def over(self, needs: Needs, inflight: int, now: int) -> dict[str, Limit]:
        """The limits that leave no room, by kind."""
        found = {
            kind: window.limit
            for kind, window in self.windows.items()
            if window.taken(now) + needs.of(kind) > window.limit.most
        }
        places = self.limits.max_parallel_requests
        if places and inflight + 1 > places.most:
            found["parallel"] = places
        return found

    def refusals(self, needs: Needs, inflight: int, now: int) -> list[str]:
        """The reasons of those that are no shadows."""
        over = self.over(needs, inflight, now)
        return [f"{kind}_limit" for kind, limit in over.items() if not limit.is_shadow]

    def take(self, claim: str, needs: Needs, inflight: int, now: int) -> None:
        over = self.over(needs, inflight, now)
        self.would_refuse.update(list(over))
        fit = [kind for kind in self.windows if kind not in over]
        for kind in fit:
            self.windows[kind].charge(claim, needs.of(kind), now)
        self.taken[claim] = needs, fit

    def settle(self, claim: str, used: str, now: int) -> bool:
        """Whether the claim had taken of a limit that counts tokens."""
        needs, kinds = self.taken.pop(claim, (Needs(0, 0), []))
        if used == "unsent":
            differences = {kind: -needs.of(kind) for kind in kinds}
        elif used:
            spent = Needs(*map(int, used.split()))
            differences = {kind: spent.of(kind) - needs.of(kind) for kind in kinds}
        else:
            differences = {}
        for kind, difference in differences.items():
            if difference:
                self.windows[kind].correct(claim, difference, now)
        return any(kind.endswith("tpm") for kind in kinds)


@dataclass
class RetryBudget:
    """First attempts and others, by half minute."""

    percent: int
    floor: int
    firsts: Counter[int] = field(default_factory=Counter)
    others: Counter[int] = field(default_factory=Counter)

    def allows(self, now: int) -> bool:
        """Whether another attempt than a first one may be made."""
        halves = (now // HALF_MS, now // HALF_MS - 1)
        firsts, others = (sum(map(seen.get, halves, (0, 0))) for seen in (self.firsts, self.others))
        return self.percent < 0 or others < max(self.floor, firsts * self.percent // 100)

    def count(self, now: int, *, is_first: bool) -> None:
        (self.firsts if is_first else self.others)[now // HALF_MS] += 1
