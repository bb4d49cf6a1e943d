"""models.yaml to models, names and what is left out of both.

1. every model and every route is read against its Struct, alone, so that all mistakes show;
2. names are claimed: ids first, then aliases, so that an alias never hides a model;
3. routes with unset variables are dropped (`gaps.py`);
4. the others inherit from their model and become `Route`s (`routes.py`);
5. routing.yaml's local/remote split gives them other weights (`split.py`);
6. the model gets what listings show of it (`listing.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.config.cooldown import cooldown_policy
from gateway.config.drafts import ModelDraft, RouteDraft, Surroundings
from gateway.config.expand import Missing
from gateway.config.gaps import drop_incomplete
from gateway.config.listing import Standing, assemble
from gateway.config.models_schema import (
    LARGEST_WEIGHT,
    SMALLEST_WEIGHT,
    ModelEntry,
    RouteEntry,
)
from gateway.config.offload import read_offload
from gateway.config.prices import judge_prices
from gateway.config.problems import Problems, within
from gateway.config.routes import RouteBuilder
from gateway.config.settings import DEFAULT_STRATEGY, unknown_strategy
from gateway.config.strategies import REMOVED_PARAMS, ExpectedTtftParams
from gateway.config.supplies import with_supplies
from gateway.config.validate import read
from gateway.core.route import Model, Route

_MODEL_KEYS = frozenset(info.name for info in msgspec.structs.fields(ModelEntry))
_ROUTE_KEYS = frozenset(info.name for info in msgspec.structs.fields(RouteEntry))
_MISPLACED_IN_MODEL = dict.fromkeys(_ROUTE_KEYS - _MODEL_KEYS, "belongs to an entry of route:")
_MISPLACED_IN_ROUTE = dict.fromkeys(
    _MODEL_KEYS - _ROUTE_KEYS, "belongs to the model, not to one of its routes"
)


class Built(Struct, frozen=True, kw_only=True):
    """The models that can be served, and what was declared."""

    models: Mapping[str, Model]
    names: Mapping[str, str]
    declared: Mapping[str, str]
    """Every id and alias of the file -> id, served or not."""
    count: int
    routes: int


def build_models(
    tree: list[Any], missing: tuple[Missing, ...], around: Surroundings, problems: Problems
) -> Built:
    """Read the entries of `models:`."""
    drafts = [
        _read_model(item, f"models[{index}]", missing, problems) for index, item in enumerate(tree)
    ]
    declared = _claim_names(drafts, problems)
    built = [model for draft in drafts if (model := _build(draft, around, problems))]
    models = {model.id: model for model in built}
    return Built(
        models=models,
        names={name: owner for name, owner in declared.items() if owner in models},
        declared=declared,
        count=len(drafts),
        routes=sum(len(draft.routes) for draft in drafts),
    )


def _read_model(
    item: object, path: str, missing: tuple[Missing, ...], problems: Problems
) -> ModelDraft:
    listed = item.get("route", ()) if isinstance(item, dict) else ()
    tree = {key: item[key] for key in item if key != "route"} if isinstance(item, dict) else item
    entry = read(tree, ModelEntry, path, problems, misplaced=_MISPLACED_IN_MODEL)
    if entry is not None and entry.pricing is not None:
        judge_prices(entry.pricing, f"{path}.pricing", problems)
    routes: list[RouteDraft] = []
    if listed == ():
        routes.append(RouteDraft(path=path, tree={}, entry=RouteEntry()))
    elif isinstance(listed, list) and listed:
        routes += [
            _read_route(one, f"{path}.route[{index}]", missing, problems)
            for index, one in enumerate(listed)
        ]
    else:
        problems.error(
            f"{path}.route",
            "must be a list with at least one route",
            "without the key, the model's own base_url is its one route",
        )
    return ModelDraft(
        path=path,
        tree=tree if isinstance(tree, dict) else {},
        entry=entry,
        routes=tuple(routes),
        missing=tuple(
            one
            for one in missing
            if within(one.path, path) and not within(one.path, f"{path}.route")
        ),
    )


def _read_route(
    item: object, path: str, missing: tuple[Missing, ...], problems: Problems
) -> RouteDraft:
    entry = read(item, RouteEntry, path, problems, misplaced=_MISPLACED_IN_ROUTE)
    if entry is not None and entry.route_id is not None:
        problems.warning(f"{path}.route_id", "is ignored in a file", "write location:")
    weight = entry.weight if entry is not None else 0
    if weight and not SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT:
        problems.error(f"{path}.weight", "is out of range", "0, or between 1e-9 and 1e9")
    return RouteDraft(
        path=path,
        tree=item if isinstance(item, dict) else {},
        entry=entry,
        missing=tuple(one for one in missing if within(one.path, path)),
    )


def _claim_names(drafts: list[ModelDraft], problems: Problems) -> dict[str, str]:
    declared: dict[str, str] = {}
    named = [(draft.path, *_names_in(draft.tree)) for draft in drafts]
    for path, model_id, _ in named:
        if model_id in declared:
            problems.error(f"{path}.id", f"the id {model_id!r} is given twice")
        if model_id:
            declared[model_id] = model_id
    for path, model_id, aliases in named:
        for index, alias in enumerate(aliases):
            owner = declared.setdefault(alias, model_id)
            if owner != model_id or alias == model_id or alias in aliases[:index]:
                problems.error(
                    f"{path}.aliases[{index}]",
                    f"the name {alias!r} already leads to the model {owner!r}",
                    "use every name once",
                )
    return declared


def _build(draft: ModelDraft, around: Surroundings, problems: Problems) -> Model | None:
    kept = drop_incomplete(draft, around, problems)
    entry = draft.entry
    if entry is None:
        return None
    standing = Standing(
        required_role=_required_role(entry, draft.path, problems),
        model_type=_model_type(entry, draft.path, problems),
        router=entry.router or around.default_router,
        router_params=_router_params(draft, entry, around, problems),
        router_params_given=frozenset(entry.router_params or ()),
    )
    policy = cooldown_policy(entry, draft.path, kept, problems)
    builder = RouteBuilder(entry, draft.path, draft.tree, around, problems, cooldown_policy=policy)
    routes = [
        (one.path, one.entry, route)
        for one in kept
        if one.entry is not None and (route := builder.build(one))
    ]
    routes = with_supplies(routes, standing.router_params, problems)
    _judge_locations([(path, route) for path, _, route in routes], problems)
    if routes and not any(route.weight for _, _, route in routes):
        problems.warning(
            draft.path,
            f"the model {entry.id!r} is not served: the weights of its routes are all 0",
            "give one of them a positive weight",
        )
        return None
    if not routes:
        return None
    placed = [route for _, _, route in routes]
    if standing.router == around.default_router == DEFAULT_STRATEGY:
        placed = around.split.over({entry.id, *entry.aliases}, placed)
    entries = {route.location: one for _, one, route in routes}
    model = assemble(entry, standing, [(entries[route.location], route) for route in placed])
    if entry.offload is None:
        return model
    offload = read_offload(
        entry.offload,
        f"{draft.path}.offload",
        model,
        has_all_routes=len(routes) == len(draft.routes),
        problems=problems,
    )
    return msgspec.structs.replace(model, offload=offload)


def _required_role(entry: ModelEntry, path: str, problems: Problems) -> str:
    if entry.admin_only is not None:
        problems.warning(f"{path}.admin_only", "is deprecated", "write required_role: admin")
    if entry.admin_only and entry.required_role not in (None, "admin"):
        problems.error(f"{path}.required_role", "contradicts admin_only", "remove admin_only")
    return "admin" if entry.admin_only else entry.required_role or "free"


def _model_type(entry: ModelEntry, path: str, problems: Problems) -> str:
    if entry.model_type and entry.type and entry.model_type != entry.type:
        problems.error(f"{path}.type", "contradicts model_type", "remove one of the two")
    return entry.model_type or entry.type or "chat"


def _router_params(
    draft: ModelDraft, entry: ModelEntry, around: Surroundings, problems: Problems
) -> Struct | None:
    """Read the parameters of the model's strategy; `None` where there is no such strategy."""
    router = entry.router or around.default_router
    params = around.strategies.get(router)
    if params is None:
        if entry.router is not None:
            problems.error(f"{draft.path}.router", *unknown_strategy(router, around.strategies))
        return None
    if issubclass(params, ExpectedTtftParams) and not around.counts_prefill:
        problems.warning(
            f"{draft.path}.router",
            f"{router} draws by weight alone while prefill.enabled is false",
        )
    given = {} if entry.router_params is None else draft.tree["router_params"]
    path, removed = f"{draft.path}.router_params", REMOVED_PARAMS.get(router)
    return read(given, params, path, problems, misplaced=removed)


def _judge_locations(routes: list[tuple[str, Route]], problems: Problems) -> None:
    first: dict[str, str] = {}
    for path, route in routes:
        other = first.setdefault(route.location, path)
        if other != path:
            problems.error(
                path,
                f"has the same location {route.location!r} as {other}",
                "give one of the two a location: of its own",
            )


def _names_in(tree: Mapping[str, object]) -> tuple[str, list[str]]:
    """The id and the aliases that an entry gives, also where something else about it is wrong."""
    model_id, aliases = tree.get("id"), tree.get("aliases")
    return (
        model_id if isinstance(model_id, str) else "",
        [one for one in aliases if isinstance(one, str)] if isinstance(aliases, list) else [],
    )
