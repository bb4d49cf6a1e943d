"""The candidates of one request, as far as they can be judged without state."""

from __future__ import annotations

from msgspec import Struct, field

from gateway.core.reasons import Reason
from gateway.core.route import Model, Route


class Plan(Struct, kw_only=True):
    """Which routes may still serve a request. Shrinks as attempts fail; belongs to one request."""

    model: Model
    candidates: list[Route]
    """In declaration order, those not yet tried."""
    pinned: bool = False
    dropped: dict[str, Reason] = field(default_factory=dict)
    """Location to the reason why it is not among the candidates."""

    def drop(self, route: Route, reason: Reason) -> None:
        """Take a route out, and remember why."""
        self.candidates = [other for other in self.candidates if other is not route]
        self.dropped[route.location] = reason
