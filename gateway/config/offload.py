"""A model's `offload:` to its policy."""

from __future__ import annotations

from msgspec import Struct

from gateway.config.offload_schema import OffloadEntry
from gateway.config.problems import Problems, did_you_mean
from gateway.config.strategies import FixedParams
from gateway.core.offload import Offload
from gateway.core.route import Model


def read_offload(
    entry: OffloadEntry,
    path: str,
    model: Model,
    *,
    has_all_routes: bool,
    problems: Problems,
) -> Offload | None:
    """Judge a policy against its model, which may lack routes that are left out for now."""
    if wrong := not_offloadable(model.router, model.router_params):
        problems.error(path, *wrong)
        return None
    locations = [route.location for route in model.routes]
    if entry.route_id not in locations:
        hint = did_you_mean(entry.route_id, locations) or f"known: {', '.join(locations)}"
        message = f"the model has no route with the location {entry.route_id!r}"
        if has_all_routes:
            problems.error(f"{path}.route_id", message, hint)
        else:
            problems.warning(f"{path}.route_id", f"{message} now, and nothing is offloaded")
    elif len(locations) < 2 and has_all_routes:
        problems.error(path, "needs a second route, whose requests it takes", "add one")
    return offload_of(entry)


def not_offloadable(router: str, params: Struct | None) -> tuple[str, str] | None:
    """Why a model with this strategy has no offload route, and what to do; `None` if it may."""
    if router != "fixed":
        return f"the strategy {router} places requests by itself", "write router: fixed"
    if isinstance(params, FixedParams) and params.hybrid_composition:
        return "hybrid_composition goes without an offload route", "remove one of the two"
    return None


def offload_of(entry: OffloadEntry) -> Offload:
    """The policy that an entry means."""
    return Offload(
        location=entry.route_id,
        wait_s=float(entry.wait_seconds),
        engine_queue_limit=entry.engine_queue_limit,
        max_input_tokens=entry.max_input_tokens,
    )
