"""Models and routes while they are judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.config.expand import Missing
from gateway.config.models_schema import ModelEntry, RouteEntry
from gateway.config.split import Split
from gateway.core.route import Timeouts


class Surroundings(Struct, frozen=True, kw_only=True):
    """What models are judged against besides their own file."""

    timeouts: Timeouts
    default_router: str
    split: Split
    strategies: Mapping[str, type[Struct]]
    counts_prefill: bool
    recovery_probes: bool
    cooldown_time: float | None
    max_cooldown: float
    host_id: str
    shared_redis: bool
    serving: bool
    allow_missing_env: bool


class RouteDraft(Struct, frozen=True, kw_only=True):
    """A route as written. `entry` is `None` when it cannot be read."""

    path: str
    tree: Mapping[str, Any]
    entry: RouteEntry | None
    missing: tuple[Missing, ...] = ()


class ModelDraft(Struct, frozen=True, kw_only=True):
    """A model as written, without its routes. `entry` is `None` when it cannot be read."""

    path: str
    tree: Mapping[str, Any]
    entry: ModelEntry | None
    routes: tuple[RouteDraft, ...]
    missing: tuple[Missing, ...]
