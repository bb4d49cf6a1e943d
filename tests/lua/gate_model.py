"""The reference: what the scripts must do at one gate, in plain Python.

It knows nothing of Redis. Replicas are letters before the dot of a ticket.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CONFIRM_MS = 1_000
KEPT_ASIDE_MS = 2_000


@dataclass
class Held:
    deadline: int
    number: int | None = None
    """In line, until the place is confirmed."""


@dataclass
class GateModel:
    """Every method takes the time at which it happens."""

    limit: int
    most: int
    interval: int
    lease: int
    holders: dict[str, Held] = field(default_factory=dict)
    line: dict[str, int] = field(default_factory=dict)
    aside: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number, and when to forget it."""
    listening: set[str] = field(default_factory=set)
    frozen: set[str] = field(default_factory=set)
    successes: int = 0
    last_number: int = 0
    told: list[tuple[str, str]] = field(default_factory=list)
    """Replicas and tickets, as published since it was emptied last."""

    def enter(self, ticket: str, wait: str, now: int) -> tuple[str, list[str]]:
        known = self._number(ticket)
        if ticket in self.holders:
            self.holders[ticket] = Held(now + self.lease)
            return "held", []
        if known is not None and wait != "over":
            return "waiting", []
        granted = self._pass_on(replica(ticket), now)
        is_free = len(self.holders) < self.limit and not self.line
        if wait == "no" and not is_free:
            return "full", granted
        if is_free or wait == "over":
            self._drop(ticket)
            self.holders[ticket] = Held(now + self.lease)
            return "held", granted
        self.last_number += 1
        self.line[ticket] = self.last_number
        return "waiting", granted

    def confirm(self, ticket: str, now: int) -> str:
        if ticket in self.holders:
            self.holders[ticket] = Held(now + self.lease)
            return "held"
        return "gone" if self._number(ticket) is None else "waiting"

    def poll(
        self, who: str, waiting: list[str], held: list[str], now: int
    ) -> tuple[set[str], list[str], int]:
        """Who is granted a place, who is not known, how many places had been lost."""
        self.frozen.discard(who)
        restored = sum(ticket not in self.holders for ticket in held)
        for ticket in held:
            self._drop(ticket)
            self.holders[ticket] = Held(now + self.lease)
        granted: set[str] = set()
        unknown = []
        for ticket in waiting:
            if at := self.holders.get(ticket):
                granted.add(ticket)
                if at.number is not None:
                    at.deadline = now + CONFIRM_MS
            elif ticket in self.aside:
                self.line[ticket] = self.aside.pop(ticket)[0]
            elif ticket not in self.line:
                unknown.append(ticket)
        granted.update(self._pass_on(who, now))
        return granted, unknown, restored

    def leave(self, ticket: str, status: int, now: int) -> tuple[str, list[str]]:
        known = ticket in self.holders or self._number(ticket) is not None
        if self.holders.pop(ticket, None):
            self._learn(status)
        self._drop(ticket)
        return "done" if known else "gone", self._pass_on(replica(ticket), now)

    def _learn(self, status: int) -> None:
        if status == 429:
            self.limit, self.successes = max(1, self.limit - 1), 0
        elif status == 200:
            self.successes += 1
            if self.successes >= self.interval:
                self.limit, self.successes = min(self.most, self.limit + 1), 0

    def _pass_on(self, own: str, now: int) -> list[str]:
        self._reap(now)
        granted = []
        while self.line and len(self.holders) < self.limit:
            ticket = min(self.line, key=self.line.__getitem__)
            number, who = self.line.pop(ticket), replica(ticket)
            if who == own:
                granted.append(ticket)
            elif who in self.frozen or who not in self.listening:
                kept = self.lease if who in self.frozen else KEPT_ASIDE_MS
                self.aside[ticket] = number, now + kept
                continue
            else:
                self.told.append((who, ticket))
            self.holders[ticket] = Held(now + CONFIRM_MS, number)
        return granted

    def _reap(self, now: int) -> None:
        for ticket, at in list(self.holders.items()):
            if at.deadline <= now:
                del self.holders[ticket]
                if at.number is not None:
                    self.aside[ticket] = at.number, now + self.lease
                    self.frozen.add(replica(ticket))
        for ticket, (_, until) in list(self.aside.items()):
            if until <= now:
                del self.aside[ticket]

    def _number(self, ticket: str) -> int | None:
        if ticket in self.holders:
            return self.holders[ticket].number
        return self.line.get(ticket, self.aside.get(ticket, (None, 0))[0])

    def _drop(self, ticket: str) -> None:
        self.line.pop(ticket, None)
        self.aside.pop(ticket, None)


def replica(ticket: str) -> str:
    return ticket.partition(".")[0]
