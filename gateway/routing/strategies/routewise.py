"""`router: routewise`: the mixture of endpoints that answers soonest for what requests may cost.

Each candidate is priced for the request and told with how fast it is; who may be used, the mixture
and the draw are one step of `admit` (`lua/score/routewise.lua`).
"""

from __future__ import annotations

from gateway.config.routewise_schema import RoutewiseParams
from gateway.config.routewise_settings import in_force
from gateway.core.hedging import Backup, Hedge, plan_hedge
from gateway.core.offer import Offer, Offers
from gateway.core.plan import Plan
from gateway.core.profile import Profile
from gateway.core.prompt import Prompt
from gateway.core.reasons import Reason
from gateway.core.request import Usage
from gateway.core.route import Model, Route
from gateway.core.supply import Supply

COMPARES = False
IS_CALIBRATED = True


def order(plan: Plan, attempt: int) -> str:
    """How `admit` takes the candidates of an attempt, counted from 1 (`lua/admit.lua`)."""
    return "pinned" if plan.pin is not None else "routewise"


def prefill_rate(_: Model) -> int:
    """Nothing is reckoned with it."""
    return 0


def outcomes_kept(model: Model) -> int:
    """How many outcomes the coordinator is to find, about."""
    return params_of(model).db_bootstrap_max_rows


def fails_over(model: Model) -> bool:
    """Whether another endpoint may be tried after a failure."""
    return params_of(model).fallback_mode == "policy"


def offers(plan: Plan, prompt: Prompt, profile: Profile) -> Offers:
    """What each candidate costs and how fast it is."""
    params, by_location = in_force(plan.model, plan.overrides), plan.candidates.by_location
    return Offers(
        alpha=params.budget_alpha,
        each={
            at: Offer(reason=plan.drained[at])
            if at in plan.drained
            else _offer(route, prompt, profile, params)
            for at, route in by_location.items()
        },
    )


def hedge(plan: Plan, prompt: Prompt, profile: Profile, location: str) -> Hedge | None:
    """When to ask another endpoint for a stream, too, that goes to this location; or never."""
    params = in_force(plan.model, plan.overrides)
    if params.latency_hedge_mode != "probability_target":
        return None
    backups = [
        Backup(location=at, speed=profile.speeds[at], cost_usd=offer.cost_usd)
        for at, offer in offers(plan, prompt, profile).each.items()
        if at != location and at in profile.speeds and not offer.reason
    ]
    return plan_hedge(profile.speeds.get(location), backups, params.latency_slo_sec * 1000)


def _offer(route: Route, prompt: Prompt, profile: Profile, params: RoutewiseParams) -> Offer:
    worth, reason = _worth(route.supply, profile)
    if reason:
        return Offer(reason=reason)
    output = profile.output_tokens(prompt.tokens, params.output_default_tokens)
    if prompt.output_tokens:
        output = min(output, prompt.output_tokens)
    usage = Usage(prompt_tokens=prompt.tokens, completion_tokens=max(round(output), 1))
    speed = profile.speeds.get(route.location)
    return Offer(
        cost_usd=route.prices.usd(usage, images=prompt.images) if worth is None else worth,
        discount_usd=_discount(route, params),
        latency_ms=speed.mean_ms if speed else params.latency_unprofiled_ttft_ms,
        source=speed.source if speed else "fallback",
    )


def _discount(route: Route, params: RoutewiseParams) -> float:
    """On each cached token. With several keys, another account may have nothing cached."""
    is_known = params.prefix_cache_cost_adjustment_enabled and len(route.api_keys) < 2
    return route.prices.cached_discount_usd if is_known and route.supply is None else 0.0


def _worth(supply: Supply | None, profile: Profile) -> tuple[float | None, Reason | None]:
    """What one use of a supply is worth, `None` for what is paid; or why it may not be used."""
    if supply is None:
        return None, None
    if supply.kind == "places":
        return 0.0, None
    quota = profile.quotas.get(supply.pool)
    if quota is None:
        return None, Reason.QUOTA_UNKNOWN
    if profile.envelope is None:
        return None, Reason.QUOTA_UNPRICED
    if quota.is_exhausted:
        return None, Reason.QUOTA_EXHAUSTED
    return profile.envelope.worth(quota.fraction), None


def params_of(model: Model) -> RoutewiseParams:
    """The parameters of a model with this strategy."""
    params = model.router_params
    if not isinstance(params, RoutewiseParams):
        raise TypeError(f"{model.id}: router_params of {model.router}: {params!r}")
    return params
