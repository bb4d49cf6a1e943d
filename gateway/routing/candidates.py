"""Static candidates: the routes of a model that this request could go to at all."""

from __future__ import annotations

from gateway.core.plan import Plan
from gateway.core.reasons import Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Model, Route
from gateway.errors import InvalidRequest
from gateway.routing.filters import FILTERS


def plan(model: Model, chat: ChatRequest, pin: str | None = None) -> Plan:
    """Filter a model's routes for a request, remembering a reason for each one dropped.

    `pin` is a provider label or an endpoint id; it leaves the first route in service that it names.
    Raises `InvalidRequest` when the pin names none, or nothing can take the request.
    """
    result = Plan(model=model, candidates=list(model.routes), pinned=pin is not None)
    for route in model.routes:
        reason = next((found for check in FILTERS if (found := check(route, chat))), None)
        if reason:
            result.drop(route, reason)
    if Reason.MODALITY in result.dropped.values() and not result.candidates:
        kinds = ", ".join(sorted(chat.modalities))
        raise InvalidRequest(
            f"Model '{chat.model}' does not support {kinds} input.", param="messages"
        )
    if pin is not None:
        _keep_only(result, _pinned(result, pin, chat.model))
    return result


def _pinned(result: Plan, pin: str, name: str) -> Route:
    for route in result.candidates:
        if pin in (route.provider, route.endpoint):
            return route
    raise InvalidRequest(f"Pinned provider '{pin}' not found for model '{name}'.")


def _keep_only(result: Plan, pinned: Route) -> None:
    for route in result.candidates:
        if route is not pinned:
            result.drop(route, Reason.NOT_PINNED)
