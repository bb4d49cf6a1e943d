"""A public model and the routes that can serve it, as the config describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from gateway.core.cooldown import HYBRID, Cooldown
from gateway.core.limits import UNLIMITED, EndpointLimits
from gateway.core.offload import Offload
from gateway.core.prices import FREE, Prices
from gateway.core.supply import Supply

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


class UpstreamKey(Struct, frozen=True):
    """A credential toward a provider, and whose requests may spend it."""

    secret: str
    min_role: str = "free"
    """The lowest role that may."""

    def __repr__(self) -> str:
        """Leave the secret out."""
        return f"UpstreamKey(min_role={self.min_role!r})"


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
    api_keys: tuple[UpstreamKey, ...] = ()
    """In order; those of its provider in the environment come after its own."""
    context_length: int | None = None
    """Prompt plus output, in tokens; `None` when the config does not say."""
    max_output_length: int | None = None
    """Upper bound put on the request's output tokens; `None` leaves the request alone."""
    input_modalities: frozenset[str] = frozenset({"text"})
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    include_usage: bool = True
    priority_scheduling: bool = False
    """Whether the engine takes a priority by which it schedules."""
    starts_when_used: bool = False
    """Whether the engine is down until a client asks it, so that nobody else is to."""
    recovery_probes: bool = False
    """Whether the coordinator tries the endpoint when it is out, before a client may."""
    limits: EndpointLimits = UNLIMITED
    prices: Prices = FREE
    """What it charges, or its model says that requests cost."""
    supply: Supply | None = None
    """What it draws from instead of charging for requests."""
    cooldown: Cooldown = HYBRID
    timeouts: Timeouts = Timeouts()
    transport: str = "http1"
    """`http1`, our own, or `aiohttp`, which goes through the proxies of the environment."""

    @property
    def endpoint(self) -> str:
        """The identity of this route in state, logs and metrics."""
        return f"{self.model_id}:{self.location}"

    @property
    def takes_account_keys(self) -> bool:
        """Whether keys of its provider that stand elsewhere may be sent there.

        A label alone is no reason to send a key in plain text to an address that needs none.
        """
        return bool(self.api_keys) or self.base_url.startswith("https:")

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
    router_params_given: frozenset[str] = frozenset()
    """Which of them the files give."""
    context_length: int = 8192
    max_output_length: int = 4096
    input_modalities: tuple[str, ...] = ("text",)
    output_modalities: tuple[str, ...] = ("text",)
    quantization: str = "bf16"
    supports_tools: bool = False
    supports_structured_output: bool = False
    supported_params: tuple[str, ...] = ("temperature", "top_p", "max_tokens")
    pricing: Mapping[str, str] = field(default_factory=dict)
    offload: Offload | None = None
    """As configured; operators may set another at run time."""
    counts_tokens: bool = False
    """Whether a limit of one of its routes counts tokens, or its strategy prices them."""

    @property
    def limited(self) -> tuple[tuple[str, EndpointLimits], ...]:
        """Locations of the routes that are limited, and in what."""
        return tuple(
            (route.location, route.limits) for route in self.routes if not route.limits.is_empty
        )
