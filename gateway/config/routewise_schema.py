"""The shape of `router_params` of the strategy `routewise`.

The field docs become the reference in config/README.md.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.config.models_schema import Pricing

Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Percentile = Annotated[float, Meta(ge=0, le=100)]
Samples = Annotated[int, Meta(ge=1, le=1_000_000)]
_ACCEPTED = "Accepted for compatibility; without effect: "


class RoutewiseParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`router_params` of the strategy `routewise`: the fastest mixture that a budget allows."""

    budget_alpha: Annotated[
        Share,
        Meta(
            description="What requests may cost on average: 0 as with the cheapest route alone, "
            "1 as with the dearest."
        ),
    ] = 0.75
    reference_api_price: Annotated[
        Pricing | None,
        Meta(
            description="Prices to reckon the worth of a quota with, for a model none of whose "
            "routes is on demand."
        ),
    ] = None
    fallback_mode: Annotated[
        Literal["policy", "strict"],
        Meta(
            description="After a failure: policy mixes the other routes anew, strict tells the "
            "client."
        ),
    ] = "policy"
    output_default_tokens: Annotated[
        float, Meta(ge=1, le=1e9, description="Tokens of an answer while nothing is known.")
    ] = 512.0
    output_min_bucket_samples: Annotated[
        Samples,
        Meta(description="So many answers to prompts of its size, and their mean is expected."),
    ] = 3
    output_min_model_samples: Annotated[
        Samples, Meta(description="Else so many of the model, and the mean of these is.")
    ] = 3
    output_min_global_samples: Annotated[
        Samples, Meta(description="Else so many of all models of the strategy.")
    ] = 3
    latency_window_sec: Annotated[
        Seconds, Meta(description="For how long a first output, or a failure, counts.")
    ] = 900.0
    latency_history_prior_window_sec: Annotated[
        Seconds,
        Meta(
            description="Whose mean stands in, as calibration begins, where none counts any more."
        ),
    ] = 86_400.0
    latency_max_samples_per_profile: Annotated[
        Samples, Meta(description="How many count at the most, for each endpoint.")
    ] = 5000
    latency_unprofiled_ttft_ms: Annotated[
        float, Meta(ge=0, le=1e9, description="What an endpoint of which nothing is known takes.")
    ] = 5000.0
    latency_min_samples: Annotated[
        int, Meta(ge=0, le=1_000_000, description="With fewer, a profile is told to be thin.")
    ] = 10
    latency_slo_sec: Annotated[
        float, Meta(gt=0, le=3600, description="When a first output is late.")
    ] = 3.0
    latency_hedge_mode: Annotated[
        Literal["disabled", "probability_target"],
        Meta(
            description="Whether a stream that will probably be late is sent to a second route, "
            "too, and goes on with the first that answers: probability_target does so at the last "
            "moment at which one of the two is 99% sure to be in time."
        ),
    ] = "disabled"
    envelope_window_hours: Annotated[
        float, Meta(gt=0, le=8760, description="For how long what a request has cost counts.")
    ] = 24.0
    envelope_lower_percentile: Annotated[
        Percentile, Meta(description="Of these costs, the one that an unused quota is priced at.")
    ] = 10.0
    envelope_upper_percentile: Annotated[
        Percentile, Meta(description="And the one that a quota used up is priced at.")
    ] = 90.0
    envelope_min_samples: Annotated[
        Samples, Meta(description="With fewer, nothing is priced, and no quota is used.")
    ] = 1
    envelope_max_samples: Annotated[
        int, Meta(ge=0, le=1_000_000, description="How many count at the most; 0 is all.")
    ] = 20_000
    envelope_bootstrap_donor_models: Annotated[
        tuple[str, ...] | None,
        Meta(description="Ids of models whose costs stand in while this one has too few."),
    ] = None
    db_bootstrap_enabled: Annotated[
        bool,
        Meta(description="Whether calibration begins with the outcomes that are stored."),
    ] = True
    db_bootstrap_max_rows: Annotated[
        int, Meta(ge=100, le=1_000_000, description="How many outcomes are stored, nearly.")
    ] = 50_000
    quota_snapshot_refresh_interval_sec: Annotated[
        Seconds, Meta(description="How often a provider is asked what is left of a quota.")
    ] = 60.0
    routewise_probe_enabled: Annotated[
        bool,
        Meta(
            description="Whether the coordinator sends each endpoint small requests, to learn how "
            "fast it is."
        ),
    ] = False
    routewise_probe_interval_sec: Annotated[Seconds, Meta(description="How often.")] = 300.0
    routewise_probe_timeout_sec: Annotated[
        Seconds, Meta(description="When one that has not answered has failed.")
    ] = 30.0
    routewise_probe_idle_only: Annotated[
        bool, Meta(description="Whether only endpoints without traffic are sent any.")
    ] = True
    routewise_probe_idle_threshold_sec: Annotated[
        Seconds, Meta(description="For how long they have had none.")
    ] = 900.0
    routewise_probe_max_concurrency: Annotated[
        Samples,
        Meta(description="How many at a time; the least of all models holds for the cluster."),
    ] = 1
    prefix_cache_cost_adjustment_enabled: Annotated[
        bool,
        Meta(
            description="Whether what an endpoint has cached of a prompt is priced at "
            "input_cache_reads: 1024 tokens or more of the same conversation."
        ),
    ] = False
    random_seed: Annotated[
        int | None, Meta(description=_ACCEPTED + "a request's id seeds its draws.")
    ] = None
    envelope_cache_ttl_sec: Annotated[
        float, Meta(ge=0, description=_ACCEPTED + "costs are evaluated once a second.")
    ] = 1.0
    stateful_providers_single_worker_only: Annotated[
        bool, Meta(description=_ACCEPTED + "quotas and places are shared by all replicas.")
    ] = True
    decision_metadata_candidate_detail: Annotated[
        bool, Meta(description=_ACCEPTED + "`concord explain` tells all of a decision.")
    ] = False


REMOVED = {
    "daily_quota": "write quota: {limit: n} at the route, with provider_type: quota",
    "quota_monthly_fee": "write provider_type: quota at the route; its worth is calibrated",
    "reset_timezone": "write a quota_source at the route: its provider says when a quota begins",
    "concurrency_enabled": "write provider_type: concurrency at the route",
    "concurrency_limit": "write concurrency: {limit: n} at the route",
    "concurrency_monthly_fee": "write provider_type: concurrency at the route",
}
"""Keys that there were once, and what is written instead."""
