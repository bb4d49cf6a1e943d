"""The routing strategies this version has, and the parameters each takes.

The parameters live here because the configuration is judged below the routing layer; a strategy
reads the Struct of its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, Struct

from gateway.config.routewise_schema import REMOVED, RoutewiseParams


class FixedParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`router_params` of the strategy `fixed`: draw by configured weight."""

    hybrid_composition: Annotated[
        bool, Meta(description="Accepted for compatibility; without effect.")
    ] = False
    local_fraction: Annotated[
        float, Meta(ge=0, le=1, description="Accepted for compatibility; informational.")
    ] = 0.5


class ExpectedTtftParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`router_params` of the strategy `expected_ttft`: go where the first token comes soonest."""

    prefill_tokens_per_s: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="What endpoints are taken to prefill until one of them has shown its rate.",
        ),
    ] = 8000


STRATEGY_PARAMS: Mapping[str, type[Struct]] = MappingProxyType(
    {"fixed": FixedParams, "expected_ttft": ExpectedTtftParams, "routewise": RoutewiseParams}
)
"""Strategy name -> the Struct of its `router_params`."""
REMOVED_PARAMS: Mapping[str, Mapping[str, str]] = MappingProxyType({"routewise": REMOVED})
"""Strategy name -> keys that its `router_params` had once, and what is written instead."""
