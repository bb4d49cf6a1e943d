"""When a stream that has no output yet is worth asking of a second endpoint, and of which.

The first output is due by the model's SLO. Asking another costs money, so that is put off as long
as both together can still be expected to meet it. Speeds are taken as they are known when the
request is sent; so what would be decided at each moment of its wait can be said beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from gateway.core.profile import Speed

TARGET = 0.99
"""How probable it must be that one of the two meets the SLO."""
OVERHEAD_MS = 5.0
"""Between the decision and the moment at which the second request is sent."""
MOMENTS = tuple(step / 40 for step in range(36, 9, -1))
"""At which it may be sent, as shares of the SLO: 90 % down to 25 %."""
LEAST_SAMPLES = 5
"""First outputs that must have been seen of either endpoint."""
_ROUNDING = 1e-9


class Backup(Struct, frozen=True, kw_only=True):
    """An endpoint that could be asked, too."""

    location: str
    speed: Speed
    cost_usd: float
    """What the request is expected to cost there, or what the use of a quota is worth."""


class Hedge(Struct, frozen=True, kw_only=True):
    """What to do about a stream that has no output."""

    after_ms: float
    """Since it was sent."""
    locations: Sequence[str]
    """Whom to ask then, the first that has room."""


def plan_hedge(primary: Speed | None, backups: Iterable[Backup], slo_ms: float) -> Hedge | None:
    """Find the last moment at which a backup is good enough, and those that are, cheapest first.

    `None` where there is none, or too little is known.
    """
    known = [one for one in backups if one.speed.count >= LEAST_SAMPLES]
    if primary is None or primary.count < LEAST_SAMPLES or not known:
        return None
    for share in MOMENTS:
        after_ms = share * slo_ms
        rated = [(success(primary, one.speed, after_ms, slo_ms), one) for one in known]
        good = [(odds, one) for odds, one in rated if odds >= TARGET - _ROUNDING]
        if good:
            good.sort(key=lambda it: (it[1].cost_usd, -it[0], it[1].speed.mean_ms, it[1].location))
            return Hedge(after_ms=after_ms, locations=[one.location for _, one in good])
    return None


def success(primary: Speed, backup: Speed, elapsed_ms: float, slo_ms: float) -> float:
    """How probable it is that one meets the SLO, if the backup is sent now.

    The primary was sent `elapsed_ms` ago and has no output. Where it has never taken so long, it
    is not counted on any more.
    """
    left_ms = slo_ms - elapsed_ms - OVERHEAD_MS
    rescued = backup.share_within(left_ms) if left_ms > 0 else 0.0
    gone, in_time = primary.share_within(elapsed_ms), primary.share_within(slo_ms)
    waiting = 1.0 - gone
    if waiting <= _ROUNDING:
        return rescued
    return (in_time - gone + (1.0 - in_time) * rescued) / waiting
