"""The shape of routing.yaml, and the settings it comes to.

A section's Struct is both the schema and what the rest of the gateway reads; its field docs become
the reference in config/README.md. Durations carry their unit in the name, else they are seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from gateway.config.coordinator_schema import CoordinatorSettings
from gateway.config.durations import DAY_S, YEAR_S, Pause, Seconds
from gateway.config.limit_schema import LimitSettings, RetryBudget
from gateway.config.quota_schema import QuotaFetcher
from gateway.config.upstream_schema import UpstreamConcurrency, UpstreamKeys
from gateway.core.route import Timeouts

Role = Literal["free", "pro", "internal", "admin"]
SESSION_FIELDS = ("prompt_cache_key", "metadata.user_id", "safety_identifier", "user")
"""Fields of a request's body that may tell one caller's conversations apart."""


class Circuit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an endpoint is taken out, and for how long."""

    failure_threshold: Annotated[
        int, Meta(ge=1, description="Failures in a row that open the circuit.")
    ] = 3
    cooldown_seconds: Annotated[
        float,
        Meta(ge=0, le=DAY_S, description="How long an open circuit stays open before one trial."),
    ] = 30.0
    min_availability: Annotated[
        float, Meta(ge=0, le=1, description="Below this moving average the circuit opens, too.")
    ] = 0.7
    ewma_alpha: Annotated[
        float, Meta(ge=0, le=1, description="Weight of the newest outcome in that average.")
    ] = 0.1


class Affinity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keeping a caller on the endpoint that served it last, whose cache knows the conversation."""

    enabled: Annotated[bool, Meta(description="Whether callers are pinned at all.")] = True
    max_age_seconds: Annotated[
        int,
        Meta(ge=0, le=YEAR_S, description="A pin ends this long after it was made; 0 is no cap."),
    ] = 86_400
    session_ids: Annotated[
        tuple[str, ...],
        Meta(
            description="What tells one caller's conversations apart; the first that a request has "
            "counts. Headers, or of the body's fields: prompt_cache_key, metadata.user_id, "
            "safety_identifier, user. An empty list tells none apart."
        ),
    ] = (
        "x-concord-session",
        "x-session-id",
        "session-id",
        "x-claude-code-session-id",
        "prompt_cache_key",
        "metadata.user_id",
    )


class Priorities(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What engines that schedule by priority are told, by how much of a prompt is not cached."""

    interactive: Annotated[int, Meta(description="Less than intervene_tokens.")] = 20
    large: Annotated[int, Meta(description="From intervene_tokens on.")] = 15
    elephant: Annotated[int, Meta(description="From elephant_tokens on.")] = 0


class Prefill(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keeping long prompts from queueing behind each other. Sizes are prompt tokens."""

    enabled: Annotated[bool, Meta(description="Whether the draw looks at prefill backlog.")] = True
    intervene_tokens: Annotated[
        int, Meta(ge=0, description="Backlog from which it counts for more than weights do.")
    ] = 50_000
    elephant_tokens: Annotated[
        int, Meta(ge=0, description="Prompts of this size are elephants (0 counts as 1).")
    ] = 200_000
    elephant_limit: Annotated[
        int, Meta(ge=0, description="Elephants one endpoint takes at a time (0 counts as 1).")
    ] = 1
    affinity_ceiling: Annotated[
        int, Meta(ge=0, description="Backlog of others above which a pinned caller moves on.")
    ] = 150_000
    hint_ttl_seconds: Annotated[
        int,
        Meta(ge=0, le=YEAR_S, description="How long an endpoint is believed to cache a prompt."),
    ] = 1_200
    priorities: Annotated[Priorities, Meta(description="See below.")] = Priorities()


_OFF = {"null_means": 0.0}


class TimeoutOverrides(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds one upstream attempt may take. Also per model and per route, the nearest one wins."""

    connect: Annotated[
        Annotated[float, Meta(gt=0, le=YEAR_S)] | UnsetType,
        Meta(description="To open a connection (default 5)."),
    ] = UNSET
    first_byte: Annotated[
        Seconds | UnsetType,
        Meta(
            description="For streams: from sending to the first output; pings and roles do not "
            "count. Whole answers are bounded by total. 0 is off (default 300).",
            extra=_OFF,
        ),
    ] = UNSET
    idle: Annotated[
        Seconds | UnsetType,
        Meta(
            description="For streams: silence after the first output; 0 is off (default 180).",
            extra=_OFF,
        ),
    ] = UNSET
    total: Annotated[
        Seconds | UnsetType,
        Meta(description="A whole non-streaming attempt; 0 is off (default 600).", extra=_OFF),
    ] = UNSET

    def over(self, base: Timeouts) -> Timeouts:
        """Return `base` with what is given here put in its place."""
        limits = (
            base_value if given is UNSET else (given or None)
            for given, base_value in (
                (self.first_byte, base.first_byte),
                (self.idle, base.idle),
                (self.total, base.total),
            )
        )
        first_byte, idle, total = limits
        return Timeouts(
            connect=base.connect if self.connect is UNSET else self.connect,
            first_byte=first_byte,
            idle=idle,
            total=total,
        )


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a replica speaks HTTP to its clients."""

    max_body_bytes: Annotated[
        int, Meta(ge=1, description="Larger request bodies are refused with 413.")
    ] = 33_554_432
    sse_keepalive_s: Annotated[
        float, Meta(gt=0, le=YEAR_S, description="Silence after which a stream sends a comment.")
    ] = 15.0
    drain_delay_s: Annotated[
        Seconds, Meta(description="Not ready, but still accepting, before a shutdown.")
    ] = 5.0
    drain_timeout_s: Annotated[
        Seconds, Meta(description="How long a shutdown waits for open requests.")
    ] = 120.0
    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(description="Addresses or networks whose X-Forwarded-For and x-request-id count."),
    ] = ()
    endpoint_header: Annotated[
        bool, Meta(description="Whether answers name their endpoint in x-concord-endpoint.")
    ] = True
    abort_grace_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=YEAR_S * 1000,
            description="After an abort, how long the engine's place stays taken.",
        ),
    ] = 100


class State(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How replicas keep their shared state in Redis."""

    lease_s: Annotated[
        float, Meta(gt=0, le=YEAR_S, description="Life of a claim; renewed every third of it.")
    ] = 15.0
    socket_timeout_ms: Annotated[
        int, Meta(ge=1, le=YEAR_S * 1000, description="The longest a request waits for Redis.")
    ] = 100
    namespace: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9._-]+$",
            description="Prefix of every Redis key.",
            extra={"form": "one or more of A-Z a-z 0-9 . _ -"},
        ),
    ] = "gw"
    heartbeat_s: Annotated[
        float, Meta(gt=0, le=YEAR_S, description="How often a replica says that it lives.")
    ] = 2.0
    replica_ttl_s: Annotated[
        float, Meta(gt=0, le=YEAR_S, description="Silence after which a replica counts as gone.")
    ] = 6.0


class Deployment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address and the models it serves."""

    endpoint: Annotated[str, Meta(description="Base URL, http:// or https://.")]
    models: Annotated[tuple[str, ...], Meta(min_length=1, description="Model ids served there.")]


class LegacyParameter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The older place of `local_fraction`."""

    local_fraction: Annotated[float, Meta(ge=0, le=1, description="See local_fraction.")] = 0.5


class RoutingFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """routing.yaml."""

    auth: Annotated[
        Literal["keys", "none"],
        Meta(
            description="`keys`: callers are told apart by keys.yaml. `none`: everybody may.",
            extra={"when_false": "YAML reads an unquoted off as false: write auth: none"},
        ),
    ] = "keys"
    default_router: Annotated[
        str | None, Meta(description="Strategy of models without `router` (default fixed).")
    ] = None
    circuit: Annotated[Circuit, Meta(description="See below.")] = Circuit()
    affinity: Annotated[Affinity, Meta(description="See below.")] = Affinity()
    prefill: Annotated[Prefill, Meta(description="See below.")] = Prefill()
    timeouts: Annotated[TimeoutOverrides, Meta(description="See below.")] = TimeoutOverrides()
    server: Annotated[Server, Meta(description="See below.")] = Server()
    state: Annotated[State, Meta(description="See below.")] = State()
    limits: Annotated[LimitSettings, Meta(description="See below.")] = LimitSettings()
    upstream_keys: Annotated[UpstreamKeys, Meta(description="See below.")] = UpstreamKeys()
    quota_fetchers: Annotated[
        dict[str, QuotaFetcher],
        Meta(description="By provider, how it is asked what is left of its quotas, see below."),
    ] = {}
    retry_budget: Annotated[RetryBudget, Meta(description="See below.")] = RetryBudget()
    upstream_concurrency: Annotated[UpstreamConcurrency, Meta(description="See below.")] = (
        UpstreamConcurrency()
    )
    local_fraction: Annotated[
        float | None,
        Meta(
            description="Share of traffic for local deployments where a model has remote ones, too "
            "(default 0.5). For models with the router fixed, while it is the default_router."
        ),
    ] = None
    timeout: Annotated[
        int,
        Meta(ge=0, le=YEAR_S, description="Seconds a health probe may take (0 counts as 1)."),
    ] = 2
    health_check: Annotated[
        int,
        Meta(
            ge=0,
            le=YEAR_S,
            description="Seconds between health probes, GET /health of each local_deployment by "
            "the coordinator; 0 is off.",
        ),
    ] = 0
    probe_effect: Annotated[
        Literal["report", "circuit"],
        Meta(
            description="`report`: what health probes find is shown. `circuit`: "
            "failure_threshold failed ones in a row open the circuit, and a passed one closes it: "
            "for engines whose /health tells whether they can serve. 2xx passes; 3xx and 4xx, as "
            "from a proxy that wants a key, are shown as unhealthy and move no circuit."
        ),
    ] = "report"
    probe_concurrency: Annotated[
        int, Meta(ge=1, le=1000, description="Health probes at a time, in the whole cluster.")
    ] = 8
    recovery_probes: Annotated[
        bool,
        Meta(
            description="Whether the coordinator tries an endpoint that is out with a request for "
            "one token before a client may. Also per model and per route."
        ),
    ] = False
    cooldown_time: Annotated[
        Pause | None,
        Meta(
            description="Seconds for which an endpoint pauses at the least; 0 is never. Without it "
            "as long as its Retry-After says, else 5. Also per model and per route."
        ),
    ] = None
    max_cooldown: Annotated[
        float,
        Meta(gt=0, le=DAY_S, description="The longest pause that a Retry-After is granted, in s."),
    ] = 3600.0
    coordinator: Annotated[CoordinatorSettings, Meta(description="See below.")] = (
        CoordinatorSettings()
    )
    logging: Annotated[
        dict[str, Any], Meta(description="Accepted for compatibility. No effect yet.")
    ] = field(default_factory=dict)
    local_deployment: Annotated[
        tuple[Deployment, ...],
        Meta(
            description="Own engines: routes at these addresses divide local_fraction among them "
            "in place of their weights; weight 0 stays 0."
        ),
    ] = ()
    remote_deployment: Annotated[
        tuple[Deployment, ...],
        Meta(
            description="Remote addresses, which divide the rest. Routes at other addresses keep "
            "their share and are the last in failover."
        ),
    ] = ()
    routing_strategy: Annotated[
        str | None, Meta(description="Deprecated: write default_router.")
    ] = None
    routing_parameter: Annotated[
        LegacyParameter | None, Meta(description="Deprecated: write local_fraction.")
    ] = None


class Settings(Struct, frozen=True, kw_only=True):
    """Everything of routing.yaml in its final form: environment applied, defaults filled in."""

    auth: Literal["keys", "none"] = "keys"
    circuit: Circuit = Circuit()
    affinity: Affinity = Affinity()
    prefill: Prefill = Prefill()
    timeouts: Timeouts = Timeouts()
    server: Server = Server()
    state: State = State()
    limits: LimitSettings = LimitSettings()
    upstream_keys: UpstreamKeys = UpstreamKeys()
    retry_budget: RetryBudget = RetryBudget()
    upstream_concurrency: UpstreamConcurrency = UpstreamConcurrency()
    default_router: str = "fixed"
    local_fraction: float = 0.5
    timeout: int = 2
    health_check: int = 0
    probe_effect: Literal["report", "circuit"] = "report"
    probe_concurrency: int = 8
    recovery_probes: bool = False
    cooldown_time: float | None = None
    max_cooldown: float = 3600.0
    coordinator: CoordinatorSettings = CoordinatorSettings()
    logging: dict[str, Any] = field(default_factory=dict)
    local_deployment: tuple[Deployment, ...] = ()
    remote_deployment: tuple[Deployment, ...] = ()
