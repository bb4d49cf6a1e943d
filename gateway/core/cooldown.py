"""When failures pause an endpoint, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from gateway.core.outcome import ErrorClass

DEFAULT_MS = 5_000
"""How long a pause lasts where neither the config nor the upstream says."""


class Cooldown(Struct, frozen=True, kw_only=True):
    """The rules of one endpoint."""

    policy: str = "hybrid"
    """`hybrid`: it pauses when the upstream says so. `litellm`: when its answers say so."""
    time_ms: int | None = None
    """How long a pause lasts at the least; 0 is never a pause."""
    max_ms: int = 3_600_000
    """The longest that an upstream may ask for."""
    allowed_fails: int | None = None
    """Of `litellm`: so many failures within `fails_within_ms` are no reason to pause."""
    allowed_fails_by_class: Mapping[ErrorClass, int] = field(default_factory=dict)
    """The same, of classes that are counted on their own."""

    @property
    def fails_within_ms(self) -> int:
        """In which time failures are counted that are allowed."""
        return DEFAULT_MS if self.time_ms is None else self.time_ms

    @property
    def counts_fails(self) -> bool:
        """Whether a number of failures is allowed, rather than a share of all attempts."""
        return self.allowed_fails is not None or bool(self.allowed_fails_by_class)


HYBRID = Cooldown()
