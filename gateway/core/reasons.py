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
    ELEPHANT_LIMIT = "elephant_limit"
    """A very large prompt, and the endpoint prefills as many of them as it may: another if any."""
    OVER_AFFINITY_CEILING = "over_affinity_ceiling"
    """The caller was pinned here, and too much of others' prefill waits: another if any."""


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
