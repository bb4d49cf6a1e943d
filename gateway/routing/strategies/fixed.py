"""`router: fixed`: draw the first attempt by weight, walk the rest in declaration order."""

from __future__ import annotations

from gateway.core.plan import Plan
from gateway.core.profile import Profile
from gateway.core.prompt import Prompt
from gateway.core.route import Model

COMPARES = False
IS_CALIBRATED = False


def order(plan: Plan, attempt: int) -> str:
    """How `admit` takes the candidates of an attempt, counted from 1 (`lua/admit.lua`)."""
    if plan.pin is not None:
        return "pinned"
    return "draw" if attempt == 1 else "declared"


def prefill_rate(_: Model) -> int:
    """Nothing is reckoned with it."""
    return 0


def outcomes_kept(_: Model) -> int:
    """Nothing is learned from them."""
    return 0


def fails_over(_: Model) -> bool:
    """Another endpoint may always be tried."""
    return True


def offers(_: Plan, __: Prompt, ___: Profile) -> None:
    """Costs do not matter."""


def hedge(_: Plan, __: Prompt, ___: Profile, ____: str) -> None:
    """No second endpoint is asked."""
