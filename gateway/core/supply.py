"""What accounts give besides requests that are paid one by one: a quota, or so many at a time."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

LOCAL = "local"
"""The provider of a quota that nobody reports: requests are counted, from midnight UTC on."""


class Source(Struct, frozen=True, kw_only=True):
    """Where it is read how much of a quota is used."""

    provider: str
    usage_label: str
    unit: str


class Supply(Struct, frozen=True, kw_only=True):
    """A pool that a route draws from. Routes with the same one share it, across models."""

    kind: Literal["quota", "places"]
    pool: str
    limit: int
    """Requests in a period of the quota, or at a time."""
    source: Source | None = None
    """Of a quota."""


class QuotaState(Struct, frozen=True, kw_only=True):
    """How much of a quota is used by now, by its provider's word and by our own count since."""

    used: float
    limit: float
    reset_at_ms: int = 0
    """When it begins anew; 0 is not known."""

    @property
    def fraction(self) -> float:
        """How much of it is used, from 0 to 1."""
        return min(max(self.used / self.limit, 0.0), 1.0) if self.limit > 0 else 1.0

    @property
    def is_exhausted(self) -> bool:
        """Whether there is not one request left."""
        return self.used + 1 > self.limit
