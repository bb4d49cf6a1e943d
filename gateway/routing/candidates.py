"""Static candidates: the routes of a model that a request could go to at all."""

from __future__ import annotations

from gateway.core.overrides import Overrides
from gateway.core.plan import Candidates, Plan
from gateway.core.reasons import Exclusion, Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Model, Route
from gateway.errors import InvalidRequest
from gateway.routing.filters import FILTERS
from gateway.routing.weights import Weighed, Weights


class Planner:
    """Makes plans.

    What the filters say depends on a request's modalities and on the overrides in force only, and
    is kept while these are the same. Their epoch would not do: somebody may have edited it.
    """

    def __init__(self) -> None:
        self._weights = Weights()
        self._candidates: dict[tuple[str, frozenset[str]], tuple[Overrides, Candidates]] = {}

    def plan(
        self, model: Model, chat: ChatRequest, overrides: Overrides, pin: str | None = None
    ) -> Plan:
        """Filter a model's routes for a request, remembering a reason for each one dropped.

        `pin` is a provider label or an endpoint id; it leaves the first route in service that it
        names. Raises `InvalidRequest` when it names none at all, or no route takes such input.
        Where one does but is out of service, the plan has no candidates and says what to tell.
        """
        if pin is not None and not any(_is_named(route, pin) for route in model.routes):
            raise _no_such_pin(pin, chat.model)
        plan = Plan(model=model, candidates=self._filtered(model, chat, overrides), pin=pin)
        _judge(plan, chat)
        if plan.refusal and set(plan.candidates.dropped.values()) == {Reason.MODALITY}:
            raise plan.refusal
        return plan

    def follow(self, plan: Plan, chat: ChatRequest, overrides: Overrides) -> None:
        """Plan anew under other overrides. What the request has struck out stays so."""
        plan.candidates = self._filtered(plan.model, chat, overrides)
        _judge(plan, chat)

    def _filtered(self, model: Model, chat: ChatRequest, overrides: Overrides) -> Candidates:
        kind = (model.id, chat.modalities)
        known = self._candidates.get(kind)
        if known is None or known[0] != overrides:
            weighed = self._weights.of(model, overrides)
            known = self._candidates[kind] = overrides, _filter(weighed, chat, overrides.epoch)
        return known[1]


def _filter(weighed: tuple[Weighed, ...], chat: ChatRequest, epoch: int) -> Candidates:
    kept: list[tuple[Route, float]] = []
    dropped: dict[str, Reason] = {}
    for one in weighed:
        reason = next((found for check in FILTERS if (found := check(one.route, chat))), None)
        if reason:
            dropped[one.route.location] = reason
        elif one.weight > 0:
            kept.append((one.route, one.weight))
        elif Exclusion.PROVIDER_DISABLED in one.reasons:
            dropped[one.route.location] = Reason.PROVIDER_DISABLED
        else:
            dropped[one.route.location] = Reason.WEIGHT_ZERO
    return Candidates.of(epoch, kept, dropped)


def _judge(plan: Plan, chat: ChatRequest) -> None:
    """Follow the pin, and say what it is if it is the request that nothing can serve.

    Not at once: other overrides than the known ones may hold by now, which the store will tell.
    """
    plan.refusal = None
    candidates = plan.candidates
    if not candidates.by_location and Reason.MODALITY in candidates.dropped.values():
        kinds = ", ".join(sorted(chat.modalities))
        plan.refusal = InvalidRequest(
            f"Model '{chat.model}' does not support {kinds} input.", param="messages"
        )
    elif plan.pin is not None:
        plan.candidates = _pinned(candidates, plan.pin)
        if not plan.candidates.by_location:
            plan.refusal = _no_such_pin(plan.pin, chat.model)


def _is_named(route: Route, pin: str) -> bool:
    return pin in (route.provider, route.endpoint)


def _pinned(candidates: Candidates, pin: str) -> Candidates:
    """Leave only the first candidate that the pin names."""
    weights = dict(candidates.table)
    kept = [
        (route, weights[location])
        for location, route in candidates.by_location.items()
        if _is_named(route, pin)
    ][:1]
    others = candidates.by_location.keys() - {route.location for route, _ in kept}
    dropped = {**candidates.dropped, **dict.fromkeys(others, Reason.NOT_PINNED)}
    return Candidates.of(candidates.epoch, kept, dropped)


def _no_such_pin(pin: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"Pinned provider '{pin}' not found for model '{name}': a pin is the label of a provider "
        "in service or an endpoint id, model:location."
    )
