"""The reference for the draw, twice: lazily, as the scripts do it, and by filtering first.

The lazy one is a process that yields what it draws from and is sent what was drawn. So the same
code is run with the numbers of a request, which must give the endpoint that `admit` gives, and with
every possible draw, which must give exactly the chances of filtering first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct

from gateway.state.policy import Policy

Process = Generator[Sequence[str], str, str | None]


class Endpoint(Struct, frozen=True):
    """A candidate as one caller's prompt finds it."""

    weight: float = 1
    is_blocked: bool = False
    backlog: int = 0
    """Tokens in prefill, of all callers."""
    own: int = 0
    """Of these the caller's own."""
    elephants: int = 0
    uncached: int = 0
    """Tokens of the prompt that it would have to prefill."""


class Instance(Struct, frozen=True):
    """A decision to be made."""

    endpoints: Mapping[str, Endpoint]
    policy: Policy = Policy()
    pinned: str = ""

    def weight(self, at: str) -> float:
        return self.endpoints[at].weight

    def is_open(self, at: str) -> bool:
        return not self.endpoints[at].is_blocked

    def is_crowded(self, at: str) -> bool:
        """Whether the prompt would be one elephant too many."""
        found, policy = self.endpoints[at], self.policy
        is_elephant = policy.prefill and found.uncached >= policy.elephant_tokens
        return is_elephant and found.elephants >= policy.elephant_limit

    def is_over_ceiling(self, at: str) -> bool:
        others = self.endpoints[at].backlog - self.endpoints[at].own
        return self.policy.prefill and others > self.policy.affinity_ceiling

    @property
    def kept(self) -> str:
        """Where the pin leads; empty when there is something to be drawn."""
        at = self.pinned
        follows = bool(at) and self.is_open(at) and not self.is_over_ceiling(at)
        return at if follows else ""

    @property
    def left(self) -> str:
        """The endpoint that the pin leaves because of what others have waiting there."""
        at = self.pinned
        return at if at and self.is_open(at) and self.is_over_ceiling(at) else ""

    def better(self, first: str, second: str) -> str:
        """Of two draws the lighter, where there is enough to intervene."""
        loads = [self.endpoints[at].backlog for at in (first, second)]
        if not self.policy.prefill or max(loads) < self.policy.intervene_tokens:
            return first
        return second if loads[1] < loads[0] else first


def lazily(instance: Instance) -> Process:
    """Draw, judge, strike out, draw again; a second time only where that could change something."""
    if instance.kept:
        return instance.kept
    others = [at for at in instance.endpoints if at != instance.left]
    crowded: list[str] = []
    for pool in (others, crowded, [at for at in (instance.left,) if at]):
        aside = crowded if pool is others else None
        first = yield from _accepted(instance, pool, aside)
        if first is None:
            continue
        is_heavy = instance.endpoints[first].backlog >= instance.policy.intervene_tokens
        if not instance.policy.prefill or len(pool) == 1 or not is_heavy:
            return first
        second = yield from _accepted(instance, pool, aside)
        assert second is not None
        return instance.better(first, second)
    return None


def _accepted(instance: Instance, pool: list[str], aside: list[str] | None) -> Process:
    while pool:
        at = yield pool
        if instance.is_open(at) and (aside is None or not instance.is_crowded(at)):
            return at
        if instance.is_open(at):
            assert aside is not None
            aside.append(at)
        pool.remove(at)
    return None


def by_numbers(instance: Instance, numbers: Sequence[float]) -> tuple[str | None, int]:
    """Where the numbers lead, and how many are used.

    The first endpoint reached by the running sum wins; rounding and zero weights fall to the last.
    """
    process, used = lazily(instance), 0
    try:
        pool = next(process)
        for number in numbers:
            used += 1
            pool = process.send(_drawn(instance, pool, number))
    except StopIteration as end:
        return end.value, used
    raise AssertionError(f"{len(numbers)} numbers are not enough")


def _drawn(instance: Instance, pool: Sequence[str], number: float) -> str:
    total = sum(instance.weight(at) for at in pool)
    threshold, running = number * total, 0.0
    for at in pool:
        running += instance.weight(at)
        if total > 0 and threshold <= running:
            return at
    return pool[-1]


Chances = Mapping[str | None, Fraction]


def chances_lazily(instance: Instance) -> Chances:
    """Every way that the lazy process may take, each with its chance."""
    chances: Counter[str | None] = Counter()

    def explore(drawn: list[str], chance: Fraction) -> None:
        process = lazily(instance)
        try:
            pool = list(next(process))
            for at in drawn:
                pool = list(process.send(at))
        except StopIteration as end:
            chances[end.value] += chance
            return
        for at, share in _shares(instance, pool).items():
            explore([*drawn, at], chance * share)

    explore([], Fraction(1))
    return chances


def chances_filtering_first(instance: Instance) -> Chances:
    """Two independent draws with replacement from what is left after all filters."""
    if instance.kept:
        return {instance.kept: Fraction(1)}
    fit = [at for at in instance.endpoints if instance.is_open(at)]
    fit = [at for at in fit if at != instance.left] or fit
    fit = [at for at in fit if not instance.is_crowded(at)] or fit
    if not fit:
        return {None: Fraction(1)}
    chances: Counter[str | None] = Counter()
    shares = _shares(instance, fit)
    for first in fit:
        for second in fit:
            chances[instance.better(first, second)] += shares[first] * shares[second]
    return chances


def _shares(instance: Instance, pool: Sequence[str]) -> dict[str, Fraction]:
    weights = {at: Fraction(instance.weight(at)) for at in pool}
    total = sum(weights.values())
    return {at: weight / total for at, weight in weights.items()}
