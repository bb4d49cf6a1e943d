"""What a model shows of its routes: the least they all can do, and the most any of them takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from gateway.config.models_schema import ModelEntry, Pricing, RouteEntry
from gateway.config.prices import as_text
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.route import Model, Route

_DEFAULTS: tuple[tuple[str, Any], ...] = (
    ("context_length", 8192),
    ("max_output_length", 4096),
    ("input_modalities", ("text",)),
    ("output_modalities", ("text",)),
    ("quantization", "bf16"),
    ("supports_tools", False),
    ("supports_structured_output", False),
    ("supported_params", ("temperature", "top_p", "max_tokens")),
    ("pricing", Pricing()),
)


class Standing(Struct, frozen=True, kw_only=True):
    """What a model decides for all its routes."""

    required_role: str
    model_type: str
    router: str
    router_params: Struct | None
    router_params_given: frozenset[str]


def assemble(
    entry: ModelEntry, standing: Standing, routes: Iterable[tuple[RouteEntry, Route]]
) -> Model:
    """Put a model together. `routes` must not be empty."""
    pairs = list(routes)
    each = {key: _each(key, default, entry, pairs) for key, default in _DEFAULTS}
    shared = set.intersection(*(set(params) for params in each["supported_params"]))
    return Model(
        id=entry.id,
        name=entry.name,
        routes=tuple(route for _, route in pairs),
        aliases=entry.aliases,
        required_role=standing.required_role,
        model_type=standing.model_type,
        router=standing.router,
        router_params=standing.router_params,
        router_params_given=standing.router_params_given,
        context_length=min(each["context_length"]),
        max_output_length=min(each["max_output_length"]),
        input_modalities=_union(each["input_modalities"]),
        output_modalities=_union(each["output_modalities"]),
        quantization=each["quantization"][0],
        supports_tools=any(each["supports_tools"]),
        supports_structured_output=any(each["supports_structured_output"]),
        supported_params=tuple(sorted(shared)),
        pricing=as_text(each["pricing"][0]),
        counts_tokens=isinstance(standing.router_params, RoutewiseParams)
        or any(route.limits.counts_tokens for _, route in pairs),
    )


def _each(
    key: str, default: Any, entry: ModelEntry, pairs: list[tuple[RouteEntry, Route]]
) -> list[Any]:
    """List a property as each route has it: its own, else the model's, else the default."""
    own = getattr(entry, key)
    inherited = default if own is None else own
    given = (getattr(route, key) for route, _ in pairs)
    return [inherited if value is None else value for value in given]


def _union(lists: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for one in lists for word in one))
