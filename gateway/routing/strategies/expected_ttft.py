"""`router: expected_ttft`: every attempt goes where its first token is to be expected soonest.

The rule itself is `lua/score/expected_ttft.lua`.
"""

from __future__ import annotations

from gateway.config.strategies import ExpectedTtftParams
from gateway.core.plan import Plan
from gateway.core.profile import Profile
from gateway.core.prompt import Prompt
from gateway.core.route import Model

COMPARES = True
IS_CALIBRATED = False


def order(plan: Plan, attempt: int) -> str:
    """How `admit` takes the candidates of an attempt, counted from 1 (`lua/admit.lua`)."""
    return "pinned" if plan.pin is not None else "expected_ttft"


def prefill_rate(model: Model) -> int:
    """Tokens/s to reckon with while no endpoint of the model has shown its own."""
    params = model.router_params
    if not isinstance(params, ExpectedTtftParams):
        raise TypeError(f"{model.id}: router_params of {model.router}: {params!r}")
    return params.prefill_tokens_per_s


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
