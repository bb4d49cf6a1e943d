"""How limits, pauses, gates and budgets of failover are shown on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gateway.commands.table import table

if TYPE_CHECKING:
    from gateway.admin.gates import GateStatus
    from gateway.admin.limits import LimitUse
    from gateway.state.standing import Cooldown, Retries


def cooling(cooldown: Cooldown | None) -> list[str]:
    """A note of a pause, if there is one."""
    return [f"cooldown {cooldown.left_s:.1f} s more ({cooldown.reason})"] if cooldown else []


def limits(by_endpoint: Iterable[tuple[str, Sequence[LimitUse]]]) -> list[str]:
    """A table of what is left of limits, if there are any."""
    heads = ("ENDPOINT", "LIMIT", "MOST", "TAKEN", "LEFT", "RESETS IN", "NOTES")
    rows = [_limit(endpoint, one) for endpoint, uses in by_endpoint for one in uses]
    return [table(heads, rows)] if rows else []


def budgets(by_model: Iterable[tuple[str, Retries]]) -> list[str]:
    """A table of how much of failover is spent, if anything has been tried lately."""
    heads = ("MODEL", "FIRST ATTEMPTS", "OTHERS", "ALLOWED")
    rows = [
        (model, str(one.first_attempts), str(one.others), str(one.allowed))
        for model, one in by_model
        if one.first_attempts or one.others
    ]
    return [table(heads, rows)] if rows else []


def _limit(endpoint: str, one: LimitUse) -> tuple[str, ...]:
    note = f"shadow, {one.would_have_refused} not refused" if one.mode == "shadow" else ""
    resets = "" if one.reset_s is None else f"{one.reset_s:.1f} s"
    numbers = (f"{number:.0f}" for number in (one.most, one.taken, one.left))
    return endpoint, one.limit, *numbers, resets, note


def gates(found: Sequence[GateStatus]) -> list[str]:
    """A table of gates, if there are any: the limit, who has passed, who waits in line."""
    rows = [
        (
            one.engine or f"{one.provider} {one.key_fingerprint}",
            str(one.limit),
            str(one.in_flight),
            str(one.waiting),
        )
        for one in found
    ]
    return [table(("GATE", "LIMIT", "PASSED", "WAITING"), rows)] if rows else []
