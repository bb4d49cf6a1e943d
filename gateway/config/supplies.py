"""What routes draw from instead of charging for requests: quotas and places; who shares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from gateway.config.models_schema import RouteEntry
from gateway.config.problems import Problems, did_you_mean
from gateway.config.quota_schema import QuotaFetcher
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.route import Model, Route
from gateway.core.supply import LOCAL, Source, Supply

LOCAL_USAGE = ("requests", "day")
"""Label and unit of the quota that is counted here."""
_KEYS = ("quota", "quota_source", "quota_pool", "concurrency", "concurrency_pool")


def with_supplies(
    routes: Iterable[tuple[str, RouteEntry, Route]], params: Any, problems: Problems
) -> list[tuple[str, RouteEntry, Route]]:
    """Give each route its supply; only `routewise`, whose parameters these are, goes by it."""
    found = []
    for path, entry, route in routes:
        if isinstance(params, RoutewiseParams):
            supply = _supply(path, entry, route, problems)
        else:
            supply = None
            _judge_without_effect(path, entry, problems)
        found.append((path, entry, structs.replace(route, supply=supply)))
    return found


def _judge_without_effect(path: str, entry: RouteEntry, problems: Problems) -> None:
    if entry.provider_type != "on_demand":
        problems.warning(
            f"{path}.provider_type", "has no effect", "only router: routewise goes by it"
        )


def _supply(path: str, entry: RouteEntry, route: Route, problems: Problems) -> Supply | None:
    kind = entry.provider_type
    needed = {"on_demand": (), "quota": _KEYS[:2], "concurrency": ("concurrency",)}[kind]
    for key in needed:
        if getattr(entry, key) is None:
            problems.error(f"{path}.{key}", f"is required with provider_type: {kind}")
    for key in _KEYS:
        if getattr(entry, key) is not None and not key.startswith(kind):
            problems.warning(f"{path}.{key}", f"has no effect with provider_type: {kind}")
    if kind == "quota" and entry.quota and entry.quota_source:
        source = Source(**structs.asdict(entry.quota_source))
        pool = entry.quota_pool or route.endpoint
        return Supply(kind="quota", pool=pool, limit=entry.quota.limit, source=source)
    if kind == "concurrency" and entry.concurrency:
        pool = entry.concurrency_pool or route.endpoint
        return Supply(kind="places", pool=pool, limit=entry.concurrency.limit)
    return None


def judge_supplies(
    models: Iterable[Model], fetchers: Mapping[str, QuotaFetcher], problems: Problems
) -> None:
    """Note pools on which routes do not agree, sources that lead nowhere, and quotas that nothing
    can price."""
    first: dict[tuple[str, str], tuple[str, Supply]] = {}
    for model in models:
        for route in model.routes:
            if route.supply is None:
                continue
            key = route.supply.kind, route.supply.pool
            other, supply = first.setdefault(key, (route.endpoint, route.supply))
            if supply != route.supply:
                problems.error(
                    "",
                    f"{route.endpoint} and {other} share the pool {route.supply.pool!r}, and "
                    "give it different limits or sources",
                    "give both the same, or name another pool",
                )
            elif other == route.endpoint and supply.source:
                _judge_source(route.endpoint, supply.source, fetchers, problems)
        _judge_prices(model, problems)


def _judge_source(
    endpoint: str, source: Source, fetchers: Mapping[str, QuotaFetcher], problems: Problems
) -> None:
    """Without a report the quota is never used; say so before somebody wonders."""
    said = (source.usage_label, source.unit)
    if source.provider == LOCAL:
        known = [LOCAL_USAGE]
    elif source.provider in fetchers:
        known = [(one.usage_label, one.unit) for one in fetchers[source.provider].usages]
    else:
        hint = did_you_mean(source.provider, (*fetchers, LOCAL))
        problems.warning(
            "",
            f"nobody reports the quota of {endpoint}: no quota_fetchers entry is named "
            f"{source.provider!r}, so that the route is not used",
            hint or "add one to routing.yaml, or count here: provider local, requests, day",
        )
        return
    if said not in known:
        listed = ", ".join(f"usage_label: {label}, unit: {unit}" for label, unit in known)
        problems.warning(
            "",
            f"nobody reports the quota of {endpoint}: {source.provider} has no usage_label: "
            f"{said[0]}, unit: {said[1]}, so that the route is not used",
            f"it has {listed}",
        )


def _judge_prices(model: Model, problems: Problems) -> None:
    """What a quota is worth is learned from requests that are priced otherwise."""
    params = model.router_params
    kinds = {route.supply.kind if route.supply else "on_demand" for route in model.routes}
    if not isinstance(params, RoutewiseParams) or "quota" not in kinds:
        return
    if params.envelope_bootstrap_donor_models or "on_demand" in kinds:
        return
    if kinds == {"quota"}:
        problems.error(
            "",
            f"EnvelopeNotCalibratedError: the model {model.id!r} has routes of quotas alone, and "
            "what these are worth could never be learned",
            "add a route of another provider_type, or envelope_bootstrap_donor_models",
        )
    elif params.reference_api_price is None:
        problems.warning(
            "",
            f"the quotas of the model {model.id!r} are never used: nothing says what they are "
            "worth",
            "add reference_api_price to its router_params, or a route on demand",
        )
