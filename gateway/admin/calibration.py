"""What has been learned of models, how old that is, and what of it is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import unquote

from msgspec import Struct

from gateway.admission.profiles import OLD_MS
from gateway.config.result import Config
from gateway.config.routewise_settings import in_force
from gateway.core.profile import NO_PROFILE, Envelope, Speed
from gateway.core.route import Model
from gateway.core.supply import QuotaState
from gateway.routing.strategies import strategy_of
from gateway.state.coordination import Coordination
from gateway.state.keys import encode_id
from gateway.state.store import Store


class QuotaTold(Struct, frozen=True, kw_only=True):
    """A quota that routes of the model draw from."""

    state: str
    """`known`, or `unknown`: nobody has reported it, and its routes are not used."""
    why: str | None
    """What is wrong with it, if anything."""
    used: float | None
    limit: float
    reset_at_ms: int | None


class SpeedTold(Struct, frozen=True, kw_only=True):
    """How fast an endpoint is."""

    mean_ms: float
    source: str
    """`profile`, `history_prior`, or `fallback` where nothing is known."""
    count: int
    errors: int
    is_thin: bool
    """Whether fewer first outputs than `latency_min_samples` are known."""


class Calibration(Struct, frozen=True, kw_only=True):
    """What is known of one model."""

    model: str
    profile_age_ms: int | None
    """`None` while there is none."""
    is_old: bool
    """Whether that is a sign that nobody calibrates."""
    endpoints: Mapping[str, SpeedTold]
    """By location."""
    output_tokens: float
    """How long an answer is taken to be, as a rule."""
    envelope: Envelope | None
    quotas: Mapping[str, QuotaTold]
    """By pool."""

    def warnings(self) -> list[str]:
        """What an operator should see to, in sentences."""
        found = []
        if self.is_old:
            age_ms = self.profile_age_ms
            age = "missing" if age_ms is None else f"{age_ms // 1000} s old"
            found.append(f"what is learned of model {self.model} is {age}: no coordinator runs?")
        for pool, quota in self.quotas.items():
            if quota.why is not None or quota.state != "known":
                why = quota.why or "nobody has reported it yet"
                found.append(f"quota {pool} of model {self.model}: {why}")
        return found


async def calibrations(config: Config, store: Store) -> list[Calibration]:
    """Of every model whose strategy learns. Raises `StateUnavailable`."""
    models = [model for model in config.models.values() if strategy_of(model).IS_CALIBRATED]
    if not models:
        return []
    published = await store.coordinator()
    return list(await asyncio.gather(*(_of(model, store, published) for model in models)))


async def _of(model: Model, store: Store, published: Coordination) -> Calibration:
    found, overrides = await asyncio.gather(store.profile(model.id), store.overrides(model.id))
    params = in_force(model, overrides)
    profile = found.profile if found else NO_PROFILE
    unknown = Speed(mean_ms=params.latency_unprofiled_ttft_ms, source="history_prior")
    return Calibration(
        model=model.id,
        profile_age_ms=found.age_ms if found else None,
        is_old=found is None or found.age_ms > OLD_MS,
        endpoints={
            route.location: _told(
                profile.speeds.get(route.location, unknown),
                is_known=route.location in profile.speeds,
                least=params.latency_min_samples,
            )
            for route in model.routes
        },
        output_tokens=params.output_default_tokens if profile.output is None else profile.output,
        envelope=profile.envelope,
        quotas=_quotas(model, profile.quotas, published),
    )


def _told(speed: Speed, *, is_known: bool, least: int) -> SpeedTold:
    return SpeedTold(
        mean_ms=speed.mean_ms,
        source=speed.source if is_known else "fallback",
        count=speed.count,
        errors=speed.errors,
        is_thin=speed.count < least,
    )


def _quotas(
    model: Model, states: Mapping[str, QuotaState], published: Coordination
) -> dict[str, QuotaTold]:
    found = {}
    for route in model.routes:
        supply = route.supply
        if supply is None or supply.kind != "quota":
            continue
        said = published.published.get(f"quota:{encode_id(supply.pool)}")
        words: Mapping[str, str] = said.words if said else {}
        state = states.get(supply.pool)
        found[supply.pool] = QuotaTold(
            state="known" if state else "unknown",
            why=unquote(words["why"]) if "why" in words else None,
            used=state.used if state else None,
            limit=state.limit if state else supply.limit,
            reset_at_ms=(state.reset_at_ms or None) if state else None,
        )
    return found
