"""What an operator has changed about a model at run time."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from gateway.core.offload import Offload


class SetOffload(Struct, frozen=True, kw_only=True):
    """An offload policy that an operator has set."""

    policy: Offload
    at_ms: int
    """When, in Unix time."""
    by: str
    """The operator's key."""


class Overrides(Struct, frozen=True, kw_only=True):
    """The run-time overrides of one model. The default is none."""

    epoch: int = 0
    """Their number in the model's history; equal epochs mean equal overrides."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Location to the weight that holds instead of the configured one: finite, not negative."""
    disabled: frozenset[str] = frozenset()
    """Provider labels whose routes are out of service."""
    settings: Mapping[str, float] = field(default_factory=dict)
    """Of the strategy, by name; a switch is 0 or 1."""
    fallbacks: Mapping[str, float] = field(default_factory=dict)
    """The same, where the model's files do not say."""
    offload: SetOffload | None = None
    """What holds instead of the configured offload policy, if there is any."""
