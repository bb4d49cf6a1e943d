"""The shape of models.yaml.

Absent keys are `None`: a route inherits them from its model, the model from the default named in
the field's doc. The field docs become the reference in config/README.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gateway.config.cooldown_schema import AllowedFailsPolicy, Fails
from gateway.config.durations import Pause
from gateway.config.limit_schema import Count, CountLimit, RateLimit
from gateway.config.offload_schema import OffloadEntry
from gateway.config.schema import Role, TimeoutOverrides

Price = str | int | float
Name = Annotated[str, Meta(min_length=1)]
_NAME = r"^[^\s\x00-\x1f\x7f]{1,256}$"
_NO_SPACES = {"form": "1 to 256 characters without spaces"}
_PLAIN = {"form": "one or more of A-Z a-z 0-9 . _ @ -"}
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-9, 1e9
"""Of a route in service. Sums and shares of such weights neither overflow nor vanish."""
Limit = Annotated[int, Meta(ge=1)]
_ZERO = {"when_zero": "leave it out for no limit; weight: 0 takes a route out of service"}


class Pricing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices in USD, as strings or numbers."""

    prompt: Annotated[Price | None, Meta(description="Per million prompt tokens.")] = None
    completion: Annotated[Price | None, Meta(description="Per million output tokens.")] = None
    input_cache_reads: Annotated[
        Price | None, Meta(description="Per million prompt tokens read from a cache.")
    ] = None
    input_cache_writes: Annotated[
        Price | None, Meta(description="Per million prompt tokens written to a cache.")
    ] = None
    request: Annotated[Price | None, Meta(description="Per request.")] = None
    image: Annotated[Price | None, Meta(description="Per image.")] = None


class Amount(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit of a quota or of concurrency."""

    limit: Annotated[int, Meta(ge=1, description="Whole number, at least 1.")]


class QuotaSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which usage record of a provider tells how much of a quota is left."""

    provider: Annotated[Name, Meta(description="Provider that reports the usage.")]
    usage_label: Annotated[Name, Meta(description="Label of the record.")]
    unit: Annotated[Name, Meta(description="Unit of the record.")]


class UpstreamKeyEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An upstream key that is kept for some callers."""

    key: Annotated[str, Meta(description="The key, best as `${VARIABLE}`.")]
    min_role: Annotated[
        Role,
        Meta(description="Lowest role whose requests may spend it: free is all."),
    ] = "free"

    def __repr__(self) -> str:
        """Leave the key out."""
        return f"UpstreamKeyEntry(min_role={self.min_role!r})"


class Shared(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a model that each of its routes may override."""

    kind: Annotated[
        Name | None, Meta(description="Protocol of the upstream (default: the model's provider).")
    ] = None
    base_url: Annotated[
        str | None, Meta(description="Upstream address, http:// or https://, with its /v1.")
    ] = None
    api_key: Annotated[str | None, Meta(description="Upstream key, best as `${VARIABLE}`.")] = None
    api_keys: Annotated[
        tuple[str | UpstreamKeyEntry, ...] | None,
        Meta(description="Several upstream keys: strings, or mappings to keep one for a role."),
    ] = None
    provider_model_id: Annotated[
        Name | None, Meta(description="The upstream's name of the model (default: its id).")
    ] = None
    embeddings_path: Annotated[
        Name | None,
        Meta(description="Path of the embeddings endpoint below base_url. No effect yet."),
    ] = None
    quantization: Annotated[Name | None, Meta(description="For listings (default bf16).")] = None
    input_modalities: Annotated[
        Annotated[tuple[Name, ...], Meta(min_length=1)] | None,
        Meta(description="Kinds of input taken (default [text])."),
    ] = None
    output_modalities: Annotated[
        Annotated[tuple[Name, ...], Meta(min_length=1)] | None,
        Meta(description="Kinds of output given (default [text])."),
    ] = None
    context_length: Annotated[
        Limit | None,
        Meta(description="Prompt plus output in tokens (listed as 8192 when not given)."),
    ] = None
    max_output_length: Annotated[
        Limit | None,
        Meta(description="Cap on a request's output tokens (listed as 4096 when not given)."),
    ] = None
    supports_tools: Annotated[
        bool | None, Meta(description="Whether tools may be used (default false).")
    ] = None
    supports_structured_output: Annotated[
        bool | None, Meta(description="Whether response_format may be used (default false).")
    ] = None
    supported_params: Annotated[
        tuple[Name, ...] | None,
        Meta(description="Sampling parameters (default [temperature, top_p, max_tokens])."),
    ] = None
    reasoning_efforts: Annotated[
        tuple[Name, ...] | None,
        Meta(description="Values reasoning_effort may have. No effect yet."),
    ] = None
    include_usage: Annotated[
        bool | None,
        Meta(description="Whether streams are asked for their usage (default true)."),
    ] = None
    timeouts: Annotated[
        TimeoutOverrides | None, Meta(description="Overrides of routing.yaml's timeouts.")
    ] = None
    transport: Annotated[
        Literal["http1", "aiohttp"] | None,
        Meta(description="aiohttp goes through HTTPS_PROXY and costs more (default http1)."),
    ] = None
    rpm: Annotated[
        Count | RateLimit | None,
        Meta(description="Requests per minute, of each endpoint.", extra=_ZERO),
    ] = None
    tpm: Annotated[
        Count | RateLimit | None,
        Meta(description="Tokens per minute, of prompts and of answers.", extra=_ZERO),
    ] = None
    itpm: Annotated[
        Count | RateLimit | None, Meta(description="Prompt tokens per minute.", extra=_ZERO)
    ] = None
    otpm: Annotated[
        Count | RateLimit | None, Meta(description="Answer tokens per minute.", extra=_ZERO)
    ] = None
    max_parallel_requests: Annotated[
        Count | CountLimit | None, Meta(description="Requests at a time.", extra=_ZERO)
    ] = None
    extra_body: Annotated[
        dict[str, Any] | None, Meta(description="Fields added to every upstream request.")
    ] = None
    on_demand: Annotated[
        bool | None,
        Meta(
            description="A local model started when first used, which the coordinator sends no "
            "samples (default false)."
        ),
    ] = None
    processor: Annotated[
        Literal["default", "glm", "qwen_coder", "think_block"] | None,
        Meta(description="Rewriting of the upstream's answers (default `default`). No effect yet."),
    ] = None
    priority_scheduling: Annotated[
        bool | None,
        Meta(description="Whether the engine takes a priority with each request (default false)."),
    ] = None
    recovery_probes: Annotated[
        bool | None,
        Meta(
            description="Whether the coordinator tries an endpoint that is out, with a request for "
            "one token (default: that of routing.yaml)."
        ),
    ] = None
    cooldown_time: Annotated[
        Pause | None,
        Meta(
            description="Seconds for which an endpoint pauses at the least; 0 is never (default: "
            "that of routing.yaml)."
        ),
    ] = None
    allowed_fails: Annotated[
        Fails | None,
        Meta(
            description="So many failures within cooldown_time are no reason to pause (with an "
            "allowed_fails_policy 3, else there is no such number)."
        ),
    ] = None
    allowed_fails_policy: Annotated[
        AllowedFailsPolicy | None,
        Meta(description="The same by class of failure; a route's adds to its model's, see below."),
    ] = None
    route_metadata: Annotated[
        dict[str, Any] | None, Meta(description="Free data kept with the route. No effect yet.")
    ] = None
    pricing: Annotated[Pricing | None, Meta(description="Prices in USD, see below.")] = None
    pricing_schedule: Annotated[
        dict[str, Any] | list[Any] | None,
        Meta(description="Prices by date and time of day (UTC). No effect yet."),
    ] = None


class RouteEntry(Shared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a model's `route:` list."""

    weight: Annotated[
        float,
        Meta(
            ge=0,
            description="Share of the draw, 1e-9 to 1e9; 0 keeps the route out of service.",
        ),
    ] = 1.0
    location: Annotated[
        Annotated[str, Meta(pattern="^[A-Za-z0-9._@-]+$", extra=_PLAIN)] | None,
        Meta(description="Name of the endpoint in state and logs (default: from kind and host)."),
    ] = None
    optional: Annotated[
        bool, Meta(description="When a variable is unset, drop this route and keep the model.")
    ] = False
    provider: Annotated[Name | None, Meta(description="Label of the account or service.")] = None
    provider_display_name: Annotated[
        Name | None, Meta(description="The label as people read it. No effect yet.")
    ] = None
    provider_type: Annotated[
        Literal["on_demand", "quota", "concurrency"],
        Meta(
            description="How the provider's capacity is bought: by the request, as a quota, or so "
            "many at a time. Only the router routewise goes by it."
        ),
    ] = "on_demand"
    quota: Annotated[
        Amount | None,
        Meta(description="`{limit: n}`, requests per period."),
    ] = None
    quota_source: Annotated[
        QuotaSource | None,
        Meta(
            description="Where the used part of the quota is read, see quota_fetchers; the "
            "provider `local` counts `requests` per `day` here."
        ),
    ] = None
    concurrency: Annotated[
        Amount | None,
        Meta(description="`{limit: n}`, requests at a time."),
    ] = None
    quota_pool: Annotated[
        Name | None,
        Meta(description="Id of a quota that routes share, across models (default: its own)."),
    ] = None
    concurrency_pool: Annotated[
        Name | None,
        Meta(description="Id of such a limit that routes share, across models (default: its own)."),
    ] = None
    routewise_pool: Annotated[
        Name | None, Meta(description="Id of a latency profile shared by routes. No effect yet.")
    ] = None
    route_id: Annotated[str | None, Meta(description="Ignored here: write location.")] = None


class ModelEntry(Shared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `models:`."""

    id: Annotated[
        str,
        Meta(pattern=_NAME, description="Public id callers ask for.", extra=_NO_SPACES),
    ]
    name: Annotated[Name, Meta(description="The model's name as people read it.")]
    provider: Annotated[Name, Meta(description="Provider label, and kind unless `kind` is given.")]
    aliases: Annotated[
        tuple[Annotated[str, Meta(pattern=_NAME, extra=_NO_SPACES)], ...],
        Meta(description="Other names that resolve to this model."),
    ] = ()
    model_type: Annotated[
        Literal["chat", "embedding"] | None,
        Meta(description="chat (default) or embedding, which is not served yet."),
    ] = None
    type: Annotated[
        Literal["chat", "embedding"] | None, Meta(description="The same as model_type.")
    ] = None
    router: Annotated[
        Name | None, Meta(description="Routing strategy (default: default_router).")
    ] = None
    router_params: Annotated[
        dict[str, Any] | None, Meta(description="Parameters of the strategy.")
    ] = None
    cooldown_policy: Annotated[
        Literal["hybrid", "litellm"] | None,
        Meta(
            description="When endpoints pause, see Cooldowns (default: litellm where "
            "cooldown_time, allowed_fails or allowed_fails_policy is given, else hybrid)."
        ),
    ] = None
    offload: Annotated[
        OffloadEntry | None,
        Meta(description="A route that is kept for requests the others cannot place, see below."),
    ] = None
    required_role: Annotated[
        Role | None, Meta(description="Lowest role that may use the model (default free).")
    ] = None
    admin_only: Annotated[
        bool | None, Meta(description="Deprecated: write required_role: admin.")
    ] = None
    route: Annotated[
        Annotated[tuple[RouteEntry, ...], Meta(min_length=1)] | None,
        Meta(description="The routes in order of failover (default: one, from the model's keys)."),
    ] = None


class ModelsFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """models.yaml."""

    models: Annotated[tuple[ModelEntry, ...], Meta(description="The models that are served.")]
