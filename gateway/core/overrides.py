"""What an operator has changed about a model at run time."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class Overrides(Struct, frozen=True, kw_only=True):
    """The run-time overrides of one model. The default is none."""

    epoch: int = 0
    """Their number in the model's history; equal epochs mean equal overrides."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Location to the weight that holds instead of the configured one: finite, not negative."""
    disabled: frozenset[str] = frozenset()
    """Provider labels whose routes are out of service."""
