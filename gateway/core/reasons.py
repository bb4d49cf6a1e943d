"""Why a route was not chosen. The codes are stable: logs, answers and alerts use them."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """One code per reason, spelt alike in Lua and Python."""

    WEIGHT_ZERO = "weight_zero"
    """The route's weight is 0: configured but out of service."""
    PROVIDER_DISABLED = "provider_disabled"
    """An operator has taken the route's provider out of service."""
    MODALITY = "modality"
    """The route does not take a kind of input that the request holds."""
    CONTEXT_WINDOW = "context_window"
    """A route whose window is at least as wide has refused this prompt as too long."""
    MAX_INPUT = "max_input"
    """The route is kept for requests to be offloaded, and takes no prompt of this size."""
    OFFLOAD_ONLY = "offload_only"
    """The route is kept for requests to be offloaded, and another can be used."""
    NOT_PINNED = "not_pinned"
    """The request is pinned to another route."""
    ALREADY_ATTEMPTED = "already_attempted"
    """This request has tried the endpoint before."""
    CIRCUIT_OPEN = "circuit_open"
    """Too many failures; the cooldown runs."""
    PROBE_IN_FLIGHT = "probe_in_flight"
    """The endpoint is half open and its one trial request is under way."""
    UNREACHABLE_FROM_HERE = "unreachable_from_here"
    """This replica alone could not connect; it keeps off for one cooldown."""
    COOLDOWN = "cooldown"
    """The endpoint is paused, as its provider has asked for, or its answers."""
    RPM_LIMIT = "rpm_limit"
    """It has served as many requests in the last minute as it may."""
    TPM_LIMIT = "tpm_limit"
    """The request's tokens, prompt and answer, go beyond what it may take in a minute."""
    ITPM_LIMIT = "itpm_limit"
    """Those of the prompt do."""
    OTPM_LIMIT = "otpm_limit"
    """Those that the answer may have do."""
    PARALLEL_LIMIT = "parallel_limit"
    """It has as many requests under way as it may."""
    QUOTA_UNKNOWN = "quota_unknown"
    """Nobody has reported what is left of the route's quota."""
    QUOTA_UNPRICED = "quota_unpriced"
    """What a use of the route's quota is worth is not known: too few requests have been seen."""
    QUOTA_EXHAUSTED = "quota_exhausted"
    """The route's quota is used up."""
    PLACES_TAKEN = "places_taken"
    """As many requests are under way in the route's pool as may be."""
    NO_FAILOVER = "no_failover"
    """The request has failed, and the model's strategy tries no other endpoint then."""
    RETRY_BUDGET = "retry_budget"
    """The model has failed over as often lately as it may."""
    ELEPHANT_LIMIT = "elephant_limit"
    """A very large prompt, and the endpoint prefills as many of them as it may: another if any."""
    OVER_AFFINITY_CEILING = "over_affinity_ceiling"
    """The caller was pinned here, and too much of others' prefill waits: another if any."""


LIMITING = frozenset(
    {
        Reason.COOLDOWN,
        Reason.RPM_LIMIT,
        Reason.TPM_LIMIT,
        Reason.ITPM_LIMIT,
        Reason.OTPM_LIMIT,
        Reason.PARALLEL_LIMIT,
        Reason.QUOTA_EXHAUSTED,
        Reason.PLACES_TAKEN,
    }
)
"""Those of endpoints that are well, and have no room for now."""


class Exclusion(StrEnum):
    """Why no draw and no failover can reach a route: what gave it a weight of 0."""

    CONFIGURED_ZERO = "configured_zero"
    """`weight: 0` in models.yaml."""
    ROUTING_YAML = "routing_yaml"
    """The local/remote split of routing.yaml."""
    WEIGHT_OVERRIDE = "weight_override"
    """An operator's weight for the endpoint, set at run time."""
    PROVIDER_DISABLED = "provider_disabled"
    """An operator has disabled the provider's label at run time."""
