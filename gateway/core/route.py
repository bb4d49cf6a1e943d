"""A public model and the routes that can serve it, as the config describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

ROLES = ("free", "pro", "internal", "admin")
"""Caller roles in ascending rank."""
WEIGHT_TOLERANCE = 1e-9
"""Weights that differ by less, relatively, are the same."""


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long one upstream attempt may take, in seconds; `None` is no limit.

    Of streams, `first_byte` runs from sending to the first output (pings and roles do not count),
    `idle` over silence after it; `total` bounds a whole answer.
    """

    connect: float = 5.0
    first_byte: float | None = 300.0
    idle: float | None = 180.0
    total: float | None = 600.0


class Route(Struct, frozen=True, kw_only=True):
    """One way to serve a model: an upstream address, the name it knows the model by, a weight."""

    model_id: str
    location: str
    provider: str
    kind: str
    base_url: str
    """Without a trailing slash."""
    upstream_model: str
    weight: float = 1.0
    """What the route is drawn by while no run-time override holds."""
    configured_weight: float = 1.0
    """The weight that models.yaml gives."""
    is_split: bool = False
    """Whether the local/remote split of routing.yaml has changed this route's share."""
    api_keys: tuple[str, ...] = ()
    context_length: int | None = None
    """Prompt plus output, in tokens; `None` when the config does not say."""
    max_output_length: int | None = None
    """Upper bound put on the request's output tokens; `None` leaves the request alone."""
    input_modalities: frozenset[str] = frozenset({"text"})
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    include_usage: bool = True
    priority_scheduling: bool = False
    """Whether the engine takes a priority by which it schedules."""
    timeouts: Timeouts = Timeouts()
    transport: str = "http1"
    """`http1`, our own, or `aiohttp`, which goes through the proxies of the environment."""

    @property
    def endpoint(self) -> str:
        """The identity of this route in state, logs and metrics."""
        return f"{self.model_id}:{self.location}"

    def __repr__(self) -> str:
        """Name the route without its credentials."""
        return f"Route({self.endpoint!r}, {self.base_url!r}, weight={self.weight})"


class Model(Struct, frozen=True, kw_only=True):
    """A public model id with its routes in declaration order (the order of failover)."""

    id: str
    name: str
    routes: tuple[Route, ...]
    aliases: tuple[str, ...] = ()
    required_role: str = "free"
    model_type: str = "chat"
    router: str = "fixed"
    """Name of the strategy."""
    router_params: Struct | None = None
    """Its parameters, of its own type."""
    context_length: int = 8192
    max_output_length: int = 4096
    input_modalities: tuple[str, ...] = ("text",)
    output_modalities: tuple[str, ...] = ("text",)
    quantization: str = "bf16"
    supports_tools: bool = False
    supports_structured_output: bool = False
    supported_params: tuple[str, ...] = ("temperature", "top_p", "max_tokens")
    pricing: Mapping[str, str] = field(default_factory=dict)
