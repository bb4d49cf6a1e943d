"""What is told of a decision: where the request goes, and how each route of the model fares."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, structs

from gateway.admin.limits import LimitUse, uses_of
from gateway.admin.rows import plain
from gateway.core.caller import Caller
from gateway.core.hedging import Hedge
from gateway.core.offer import Offer
from gateway.core.overrides import Overrides
from gateway.core.plan import Plan
from gateway.core.route import Model
from gateway.routing.weights import weigh
from gateway.state.standing import Cooldown, Retries, Standing

_NEAR = 1.05
"""Endpoints whose scores differ by less are as good as each other (`lua/score`)."""
_ROUNDED_MS = 0.5
"""By how much a score may be off as it is told."""
_NOT_SHOWN = {"generation", "cooldown"}
_WINDOWS = ("sliding ", "fixed ")
"""What the text of a window begins with, which says nothing to people (`lua/lib/window.lua`)."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A route of the model, and how it fares."""

    endpoint: str
    weight: float
    """In force."""
    factors: Mapping[str, float]
    """What a strategy multiplies it by; `fixed` has none."""
    score: float | None
    """What a strategy that compares gives it, in ms: the least is the best; `fixed` gives none."""
    share: float
    """Of the weights of all that may be drawn; where endpoints are compared, of those that are as
    good as the best; where they are mixed, of the mixture. Pins are not in it."""
    cost_usd: float | None
    """What the request is expected to cost there, where a strategy weighs that."""
    latency_source: str | None
    """How its latency is known, which is its score then: `profile`, `history_prior`, or `fallback`
    for not at all."""
    reason: str | None
    """Why it may not be drawn now."""
    cooldown: Cooldown | None
    """A pause, while it lasts."""
    limits: Sequence[LimitUse]
    holds: Mapping[str, int | float | str]
    """The rest of its row in Redis, as far as it says something to people."""


class Explanation(Struct, frozen=True, kw_only=True):
    """A decision, and all that led to it."""

    model: str
    epoch: int
    request_id: str
    attempt: int
    replica: str
    """Whose request it would be: one replica alone may keep off an endpoint."""
    drawn: str | None
    """The endpoint."""
    refused: str | None
    """What a client would be told instead, or that the caller may not use the model."""
    order: str
    """How candidates are taken, as the strategy says (`lua/admit.lua`)."""
    draws: Sequence[float]
    """The numbers that the draw has used."""
    pin: str
    """What becomes of the caller's pin: `kept`, `made`, or nothing."""
    probe: bool
    """Whether it would be the one trial of a half-open circuit."""
    prompt_tokens: int
    output_tokens: int
    """That the answer may have at the most, where a limit counts tokens; 0 is not known."""
    prefill_tokens: int
    """What the endpoint would be charged with until the first output."""
    retry_after_ms: int
    """When a refusal may end; 0 where waiting cannot help."""
    retry_budget: Retries | None
    """Of failover, the attempts before this one counted in. `None` where it has none."""
    profile_age_ms: int | None
    """How old what has been learned of the model is; `None` for nothing."""
    hedge: Hedge | None = None
    """When a stream without output is sent to another location, too, and to which, the first that
    has room; `None` for never."""
    candidates: Sequence[Candidate]


class Compared(Struct, frozen=True, kw_only=True):
    """What a strategy has told endpoints apart by, by location; empty where it has not."""

    scores: Mapping[str, float]
    shares: Mapping[str, float]
    costs: Mapping[str, float]
    """Of those that were compared, in US dollars."""
    offers: Mapping[str, Offer]


def candidates_of(
    plan: Plan,
    overrides: Overrides,
    reasons: Mapping[str, str],
    standing: Standing,
    compared: Compared,
) -> list[Candidate]:
    """How each route of the model fares, `reasons` being why some may not be drawn."""
    weights = {one.route.location: one.weight for one in weigh(plan.model, overrides)}
    admissible = [at for at in weights if at not in reasons]
    shares = compared.shares or _shares(weights, _drawable(admissible, compared.scores))
    offers = {at: offer for at, offer in compared.offers.items() if not offer.reason}
    return [
        Candidate(
            endpoint=route.endpoint,
            weight=weights[route.location],
            factors={},
            score=compared.scores.get(route.location),
            share=shares.get(route.location, 0.0),
            cost_usd=_cost(route.location, compared.costs, offers),
            latency_source=offers[route.location].source if route.location in offers else None,
            reason=reasons.get(route.location),
            cooldown=standing.cooldowns.get(route.location),
            limits=uses_of(route.limits, standing.uses.get(route.location, ())),
            holds=_holds(standing.rows.get(route.location, {})),
        )
        for route in plan.model.routes
    ]


def _cost(location: str, costs: Mapping[str, float], offers: Mapping[str, Offer]) -> float | None:
    """What was compared, else what would have been."""
    offered = offers[location].cost_usd if location in offers else None
    return costs.get(location, offered)


def _shares(weights: Mapping[str, float], drawable: Collection[str]) -> dict[str, float]:
    total = sum(weights[location] for location in drawable)
    return {location: weights[location] / total for location in drawable}


def _drawable(admissible: Sequence[str], scores: Mapping[str, float]) -> set[str]:
    """Those among whom weights choose: where there are scores, the best and those near it."""
    known = {location: scores[location] for location in admissible if location in scores}
    if not known:
        return set(admissible)
    most = (min(known.values()) + _ROUNDED_MS) * _NEAR + _ROUNDED_MS
    return {location for location, score in known.items() if score <= most}


def _holds(row: Mapping[str, str]) -> dict[str, int | float | str]:
    values = {name: plain(text) for name, text in row.items() if _is_telling(name, text)}
    if isinstance(availability := values.get("availability"), float):
        values["availability"] = round(availability, 4)
    return values


def _is_telling(name: str, text: str) -> bool:
    """Whether a field says something to people that is told nowhere else."""
    is_of_limit = name.startswith("would_refuse_") or text.startswith(_WINDOWS)
    return name not in _NOT_SHOWN and not is_of_limit


def as_told(found: Explanation, caller: Caller, model: Model) -> Explanation:
    """The same, or the refusal of a caller who may not use the model."""
    if caller.may_use(model):
        return found
    return structs.replace(
        found,
        drawn=None,
        refused=f"'{caller.id}' may not use model '{model.id}': to this caller it looks unknown.",
        draws=(),
        hedge=None,
        pin="",
        probe=False,
        prefill_tokens=0,
        retry_after_ms=0,
    )
