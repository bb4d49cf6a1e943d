"""The reference: what the scripts must do to the limits under one tag, in plain Python.

It knows nothing of Redis, keeps every charge by itself and sums up anew whenever it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.core.limits import Limit, Scope

TOMBSTONE_MS = 600_000
RESERVE_REAPS = 4


@dataclass
class Charge:
    """What one reservation has taken of one window."""

    at: int
    amount: int


@dataclass
class Window:
    """Requests or tokens of one scope. The charges of others are never touched."""

    limit: Limit
    length: int
    charges: dict[str, list[Charge]] = field(default_factory=dict)
    start: int | None = None
    """Of a fixed window."""

    def counts(self, at: int, now: int) -> bool:
        if self.limit.is_fixed:
            return self.start is not None and self.start <= at and now < self.start + self.length
        part = self.length // 30
        return at // part >= now // part - 30

    def taken(self, now: int) -> int:
        every = (charge for some in self.charges.values() for charge in some)
        return sum(charge.amount for charge in every if self.counts(charge.at, now))

    def charge(self, reservation: str, amount: int, now: int) -> None:
        if self.limit.is_fixed and (self.start is None or now >= self.start + self.length):
            self.start = now
        self.charges.setdefault(reservation, []).append(Charge(now, amount))

    def correct(self, reservation: str, difference: int, now: int) -> None:
        [*_, last] = self.charges.get(reservation) or [None]
        if last is not None and self.counts(last.at, now):
            last.amount += difference
        elif difference > 0:
            self.charge(f"{reservation} over", difference, now)


@dataclass
class Budget:
    limit: Limit
    duration: int
    start: int = 0
    costs: dict[str, int] = field(default_factory=dict)
    """What each reservation of this budget is charged for, as far as that is known."""
    held: set[str] = field(default_factory=set)

    def renew(self, now: int) -> None:
        over = self.duration > 0 and now - self.start >= self.duration
        if over or not sum(self.costs.values()):
            self.start, self.costs, self.held = now, {}, set()

    def taken(self) -> int:
        return sum(self.costs.values())

    def spent(self) -> int:
        return sum(cost for name, cost in self.costs.items() if name not in self.held)


@dataclass
class Reservation:
    deadline: int
    tokens: int
    nanousd: int
    windows: list[tuple[str, Window]] = field(default_factory=list)
    """With what is counted: `rpm` or `tpm`."""
    places: list[str] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)


@dataclass
class CallerModel:
    """The limits under one tag. Every method takes the time at which it happens."""

    scopes: tuple[Scope, ...]
    lease: int
    length: int
    reservations: dict[str, Reservation] = field(default_factory=dict)
    lapsed: dict[str, tuple[int, Reservation]] = field(default_factory=dict)
    would_refuse: dict[str, int] = field(default_factory=dict)
    windows: dict[str, Window] = field(default_factory=dict)
    budgets: dict[str, Budget] = field(default_factory=dict)
    at_ms: int = 0

    def __post_init__(self) -> None:
        for scope in self.scopes:
            name = f"{scope.kind}:{scope.id}"
            for kind, limit in (("rpm", scope.limits.rpm), ("tpm", scope.limits.tpm)):
                if limit:
                    self.windows[f"{name} {kind}"] = Window(limit, self.length)
            if scope.limits.max_budget:
                duration = scope.limits.budget_duration_ms
                self.budgets[name] = Budget(scope.limits.max_budget, duration)

    def clock(self, now: int) -> int:
        return self.at_ms if now < self.at_ms < now + 5_000 else now

    def parallel(self, scope: str) -> int:
        return sum(held.places.count(scope) for held in self.reservations.values())

    def reserve(
        self, name: str, scopes: tuple[Scope, ...], tokens: int, nanousd: int, now: int
    ) -> bool:
        """Whether it is granted."""
        now = self.clock(now)
        self.reap(now, RESERVE_REAPS)
        held = Reservation(now + self.lease, tokens, nanousd)
        refused = False
        shadows: list[str] = []
        charged: list[tuple[Window, int]] = []
        for scope in scopes:
            of = f"{scope.kind}:{scope.id}"
            limits = scope.limits
            for kind, need in (("rpm", 1), ("tpm", tokens)):
                window = self.windows.get(f"{of} {kind}")
                if window and window.taken(now) + need <= window.limit.most:
                    charged.append((window, need))
                    held.windows.append((kind, window))
                elif window and window.limit.is_shadow:
                    shadows.append(f"{of} {kind}")
                elif window:
                    refused = True
            places = limits.max_parallel_requests
            if places and self.parallel(of) + 1 <= places.most:
                held.places.append(of)
            elif places and places.is_shadow:
                shadows.append(f"{of} parallel")
            elif places:
                refused = True
            budget = self.budgets.get(of)
            if budget and self.money_taken(of, now) + max(nanousd, 1) <= budget.limit.most:
                held.budgets.append(budget)
            elif budget and budget.limit.is_shadow:
                shadows.append(f"{of} budget")
            elif budget:
                refused = True
        if refused:
            return False
        for window, need in charged:
            window.charge(name, need, now)
        for budget in held.budgets:
            budget.renew(now)
            budget.costs[name] = nanousd
            budget.held.add(name)
        for shadow in shadows:
            self.would_refuse[shadow] = self.would_refuse.get(shadow, 0) + 1
        self.reservations[name] = held
        self.at_ms = now
        return True

    def settle(self, name: str, tokens: int, nanousd: int, now: int, *, used: bool) -> str:
        now = self.clock(now)
        held = self.reservations.pop(name, None)
        status = "done"
        if held is None:
            until, held = self.lapsed.pop(name, (0, None))
            status = "late"
            if held is None or now >= until:
                return "gone"
        self.at_ms = now
        for kind, window in held.windows:
            if kind == "rpm" and not used:
                window.correct(name, -1, now)
            if kind == "tpm" and tokens != held.tokens:
                window.correct(name, tokens - held.tokens, now)
        for budget in held.budgets:
            budget.renew(now)
            budget.held.discard(name)
            if name in budget.costs:
                budget.costs[name] = nanousd
            else:
                budget.costs[f"{name} over"] = max(nanousd - held.nanousd, 0)
        return status

    def renew(self, names: list[str], now: int) -> list[str]:
        now = self.clock(now)
        for name in names:
            if name in self.reservations:
                self.reservations[name].deadline = now + self.lease
        return [name for name in names if name not in self.reservations]

    def reassert(self, name: str, now: int) -> str:
        if name in self.reservations:
            return "again"
        self.at_ms = self.clock(now)
        _, held = self.lapsed.pop(name)
        held.deadline = self.at_ms + self.lease
        self.reservations[name] = held
        return "done"

    def reap(self, now: int, limit: int) -> int:
        now = self.clock(now)
        standing = self.reservations.items()
        due = sorted((held.deadline, name) for name, held in standing if held.deadline <= now)
        for _, name in due[:limit]:
            held = self.reservations.pop(name)
            self.lapsed[name] = (now + TOMBSTONE_MS, held)
            for budget in held.budgets:
                budget.renew(now)
                budget.held.discard(name)
        return len(due[:limit])

    def money_taken(self, scope: str, now: int) -> int:
        budget = self.budgets[scope]
        over = budget.duration > 0 and now - budget.start >= budget.duration
        return 0 if over else budget.taken()
