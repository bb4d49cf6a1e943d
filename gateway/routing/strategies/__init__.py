"""Strategies: how an attempt's candidates are put to `admit`. One file per `router:` name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from gateway.core.plan import Plan
from gateway.core.route import Model
from gateway.routing.strategies import expected_ttft, fixed


class Strategy(Protocol):
    """What a file here holds."""

    COMPARES: bool
    """Whether endpoints are compared by what a prompt costs there. Then each conversation is told
    apart from its caller's others, and how fast endpoints prefill is learned."""

    def order(self, plan: Plan, attempt: int) -> str:
        """How `admit` takes the candidates of an attempt, counted from 1 (`lua/admit.lua`)."""
        ...

    def prefill_rate(self, model: Model) -> int:
        """Tokens/s to reckon with while no endpoint of the model has shown its own; 0 for none."""
        ...


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {"fixed": fixed, "expected_ttft": expected_ttft}
)


def strategy_of(model: Model) -> Strategy:
    """The strategy that a model's config names."""
    return STRATEGIES[model.router]
