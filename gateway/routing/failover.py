"""What a failed attempt means for the rest of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from gateway.core.plan import Plan
from gateway.core.reasons import Reason
from gateway.core.route import Route
from gateway.routing.strategies import strategy_of


class Failure(Protocol):
    """A classified failure, as far as failover asks."""

    @property
    def describes_request(self) -> bool:
        """Whether it is the request that is wrong, rather than the endpoint."""
        ...

    @property
    def context_refusal(self) -> bool:
        """Whether the prompt was refused as longer than the context window."""
        ...


F = TypeVar("F", bound=Failure)


def strike(plan: Plan, route: Route, failure: Failure) -> list[Route]:
    """Take a failed route out of the plan, and with it those that would refuse the same prompt.

    Returns the latter: after a refusal for length, a route with a configured window no wider than
    the refusing one's is not worth a try. Unknown windows are.
    """
    strike_attempted(plan, route, is_to_blame=not failure.describes_request)
    if not failure.context_refusal or route.context_length is None:
        return []
    too_narrow = [
        other
        for other in plan.left()
        if other.context_length is not None and other.context_length <= route.context_length
    ]
    for other in too_narrow:
        plan.strike(other, Reason.CONTEXT_WINDOW)
    return too_narrow


def strike_attempted(plan: Plan, route: Route, *, is_to_blame: bool = True) -> None:
    """Take a route that has failed out of the plan, and all others where no other may be tried.

    Only where an endpoint is to blame are further attempts failover, which has a budget: a caller's
    bad requests must not use up what others need.
    """
    plan.is_failover = plan.is_failover or is_to_blame
    plan.strike(route, Reason.ALREADY_ATTEMPTED)
    if not strategy_of(plan.model).fails_over(plan.model):
        for other in plan.left():
            plan.strike(other, Reason.NO_FAILOVER)


def surfaced(failures: Sequence[F]) -> F:
    """Choose which of several failures the caller sees.

    The first that describes the request, else the first: a dead endpoint must not hide the answer
    that tells the caller what is wrong.
    """
    return next((failure for failure in failures if failure.describes_request), failures[0])
