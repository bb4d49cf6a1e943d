"""Static candidates: the routes of a model that a request could go to at all."""

from __future__ import annotations

from gateway.config.offload import not_offloadable
from gateway.core.offload import Offload
from gateway.core.overrides import Overrides
from gateway.core.plan import Candidates, Plan
from gateway.core.reasons import Exclusion, Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Model, Route
from gateway.errors import InvalidRequest
from gateway.protocols.token_estimate import estimate_tokens
from gateway.routing.filters import FILTERS
from gateway.routing.weights import Weighed, Weights

_Kind = tuple[str, frozenset[str], bool]
"""A model, modalities, and whether the prompt is too large to be offloaded."""


class Planner:
    """Makes plans.

    What the filters say depends on a request's modalities, on whether it may be offloaded by its
    size, and on the overrides in force only, and is kept while these are the same. Their epoch
    would not do: somebody may have edited it.
    """

    def __init__(self) -> None:
        self._weights = Weights()
        self._candidates: dict[_Kind, tuple[Overrides, Candidates]] = {}

    def plan(
        self,
        model: Model,
        chat: ChatRequest,
        overrides: Overrides,
        pin: str | None = None,
        *,
        tokens: int = 0,
    ) -> Plan:
        """Filter a model's routes for a request, remembering a reason for each one dropped.

        `pin` is a provider label or an endpoint id; it leaves the first route in service that it
        names. Raises `InvalidRequest` when it names none at all, or no route takes such input.
        Where one does but is out of service, the plan has no candidates and says what to tell.
        `tokens` is the prompt's estimated size, for whoever knows it already.
        """
        if pin is not None and not any(_is_named(route, pin) for route in model.routes):
            raise _no_such_pin(pin, chat.model)
        candidates = self._filtered(model, chat, overrides, pin, tokens)
        plan = Plan(model=model, candidates=candidates, overrides=overrides, pin=pin)
        _judge(plan, chat)
        if plan.refusal and set(plan.candidates.dropped.values()) == {Reason.MODALITY}:
            raise plan.refusal
        return plan

    def follow(
        self, plan: Plan, chat: ChatRequest, overrides: Overrides, *, tokens: int = 0
    ) -> None:
        """Plan anew under other overrides. What the request has struck out stays so."""
        plan.candidates = self._filtered(plan.model, chat, overrides, plan.pin, tokens)
        plan.overrides = overrides
        _judge(plan, chat)

    def _filtered(
        self,
        model: Model,
        chat: ChatRequest,
        overrides: Overrides,
        pin: str | None,
        tokens: int,
    ) -> Candidates:
        offload = policy_of(model, overrides)
        is_too_large = bool(pin is None and offload and not _takes(offload, chat, tokens))
        kind = (model.id, chat.modalities, is_too_large)
        known = self._candidates.get(kind)
        if known is None or known[0] != overrides:
            weighed = self._weights.of(model, overrides)
            found = _filter(weighed, chat, overrides.epoch, offload, is_too_large=is_too_large)
            known = self._candidates[kind] = overrides, found
        return known[1]


def policy_of(model: Model, overrides: Overrides) -> Offload | None:
    """The offload policy that an operator has set, else the configured one.

    It is without effect where the strategy places requests by itself.
    """
    offload = overrides.offload.policy if overrides.offload else model.offload
    return None if not_offloadable(model.router, model.router_params) else offload


def _takes(offload: Offload, chat: ChatRequest, tokens: int) -> bool:
    """Whether a prompt may be offloaded. It is sized only where that depends on its size."""
    return offload.max_input_tokens is None or offload.takes(tokens or estimate_tokens(chat))


def _filter(
    weighed: tuple[Weighed, ...],
    chat: ChatRequest,
    epoch: int,
    offload: Offload | None,
    *,
    is_too_large: bool,
) -> Candidates:
    kept: list[tuple[Route, float]] = []
    dropped: dict[str, Reason] = {}
    in_service = {one.route.location for one in weighed if one.weight > 0}
    if offload and offload.location not in in_service:
        offload = None  # there is no such route: it is as if there were no policy
    for one in weighed:
        reason = next((found for check in FILTERS if (found := check(one.route, chat))), None)
        if reason:
            dropped[one.route.location] = reason
        elif offload and is_too_large and one.route.location == offload.location:
            dropped[one.route.location] = Reason.MAX_INPUT
        elif one.weight > 0:
            kept.append((one.route, one.weight))
        elif Exclusion.PROVIDER_DISABLED in one.reasons:
            dropped[one.route.location] = Reason.PROVIDER_DISABLED
        else:
            dropped[one.route.location] = Reason.WEIGHT_ZERO
    return Candidates.of(epoch, kept, dropped, in_service=len(in_service), offload=offload)


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
    return Candidates.of(
        candidates.epoch,
        kept,
        dropped,
        in_service=candidates.in_service,
        offload=candidates.offload,
        has_reserve=False,
    )


def _no_such_pin(pin: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"Pinned provider '{pin}' not found for model '{name}': a pin is the label of a provider "
        "in service or an endpoint id, model:location."
    )
