"""Static candidates: the routes of a model that a request could go to at all."""

from __future__ import annotations

from gateway.core.plan import Candidates, Plan
from gateway.core.reasons import Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Model, Route
from gateway.errors import InvalidRequest
from gateway.routing.filters import FILTERS


class Planner:
    """Makes plans. What the filters say depends on a request's modalities only, and is kept."""

    def __init__(self) -> None:
        self._candidates: dict[tuple[str, frozenset[str]], Candidates] = {}

    def plan(self, model: Model, chat: ChatRequest, pin: str | None = None) -> Plan:
        """Filter a model's routes for a request, remembering a reason for each one dropped.

        `pin` is a provider label or an endpoint id; it leaves the first route in service that it
        names. Raises `InvalidRequest` when the pin names none, or nothing can take the request.
        """
        kind = (model.id, chat.modalities)
        candidates = self._candidates.get(kind)
        if candidates is None:
            candidates = self._candidates[kind] = _filter(model, chat)
        if not candidates.by_location and Reason.MODALITY in candidates.dropped.values():
            kinds = ", ".join(sorted(chat.modalities))
            raise InvalidRequest(
                f"Model '{chat.model}' does not support {kinds} input.", param="messages"
            )
        if pin is None:
            return Plan(model=model, candidates=candidates)
        return Plan(model=model, candidates=_pinned(candidates, pin, chat.model), pinned=True)


def _filter(model: Model, chat: ChatRequest) -> Candidates:
    kept: list[Route] = []
    dropped: dict[str, Reason] = {}
    for route in model.routes:
        reason = next((found for check in FILTERS if (found := check(route, chat))), None)
        if reason:
            dropped[route.location] = reason
        else:
            kept.append(route)
    return Candidates.of(kept, dropped)


def _pinned(candidates: Candidates, pin: str, name: str) -> Candidates:
    """Leave only the first candidate that the pin names."""
    for route in candidates.by_location.values():
        if pin in (route.provider, route.endpoint):
            others = dict.fromkeys(candidates.by_location, Reason.NOT_PINNED)
            del others[route.location]
            return Candidates.of([route], {**candidates.dropped, **others})
    raise InvalidRequest(
        f"Pinned provider '{pin}' not found for model '{name}': a pin is a provider's label or an "
        "endpoint id, model:location."
    )
