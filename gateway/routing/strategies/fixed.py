"""`router: fixed`: draw the first attempt by weight, walk the rest in declaration order."""

from __future__ import annotations

from gateway.core.plan import Plan
from gateway.core.route import Model

COMPARES = False


def order(plan: Plan, attempt: int) -> str:
    """How `admit` takes the candidates of an attempt, counted from 1 (`lua/admit.lua`)."""
    if plan.pin is not None:
        return "pinned"
    return "draw" if attempt == 1 else "declared"


def prefill_rate(_: Model) -> int:
    """Nothing is reckoned with it."""
    return 0
