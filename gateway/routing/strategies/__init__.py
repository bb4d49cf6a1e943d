"""Strategies: how an attempt's candidates are put to `admit`. One file per `router:` name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from gateway.core.hedging import Hedge
from gateway.core.offer import Offers
from gateway.core.plan import Plan
from gateway.core.profile import Profile
from gateway.core.prompt import Prompt
from gateway.core.route import Model
from gateway.routing.strategies import expected_ttft, fixed, routewise


class Strategy(Protocol):
    """What a file here holds."""

    COMPARES: bool
    """Whether endpoints are compared by what a prompt costs there. Then each conversation is told
    apart from its caller's others, and how fast endpoints prefill is learned."""
    IS_CALIBRATED: bool
    """Whether it goes by what the coordinator learns from how attempts end. Then that is recorded,
    and prompts are priced."""

    def order(self, plan: Plan, attempt: int) -> str:
        """How `admit` takes the candidates of an attempt, counted from 1 (`lua/admit.lua`)."""
        ...

    def prefill_rate(self, model: Model) -> int:
        """Tokens/s to reckon with while no endpoint of the model has shown its own; 0 for none."""
        ...

    def outcomes_kept(self, model: Model) -> int:
        """How many outcomes the coordinator is to find, about; 0 where it learns nothing."""
        ...

    def fails_over(self, model: Model) -> bool:
        """Whether another endpoint may be tried after a failure."""
        ...

    def offers(self, plan: Plan, prompt: Prompt, profile: Profile) -> Offers | None:
        """What each candidate costs and how fast it is; `None` where that does not matter."""
        ...

    def hedge(self, plan: Plan, prompt: Prompt, profile: Profile, location: str) -> Hedge | None:
        """When to ask another endpoint for a stream, too, that goes to this location; or never."""
        ...


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {"fixed": fixed, "expected_ttft": expected_ttft, "routewise": routewise}
)


def strategy_of(model: Model) -> Strategy:
    """The strategy that a model's config names."""
    return STRATEGIES[model.router]
