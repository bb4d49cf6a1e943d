"""The candidates of one request, as far as they can be judged before the store is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from gateway.core.reasons import Reason
from gateway.core.route import Model, Route


class Candidates(Struct, frozen=True):
    """The routes of a model that requests of one kind may go to. Made once, shared by them all."""

    epoch: int
    """Of the run-time overrides that these follow."""

    by_location: Mapping[str, Route]
    """In declaration order."""
    table: tuple[tuple[str, float], ...]
    """Location and weight of each, as `admit` takes them."""
    dropped: Mapping[str, Reason]
    """Location to reason, of the model's other routes."""

    @classmethod
    def of(
        cls, epoch: int, kept: Sequence[tuple[Route, float]], dropped: Mapping[str, Reason]
    ) -> Candidates:
        """Line the routes up with the weights in force."""
        table = tuple((route.location, weight) for route, weight in kept)
        return cls(epoch, {route.location: route for route, _ in kept}, table, dropped)


class Plan(Struct, kw_only=True):
    """Which candidates may still serve a request. Shrinks as attempts fail; belongs to one request.

    What has been struck out stays in the table that `admit` gets, beside a list of it.
    """

    model: Model
    candidates: Candidates
    pin: str | None = None
    """What an operator asks for: a provider's label or an endpoint id."""
    refusal: Exception | None = None
    """What to tell when there is no candidate, if it is not that none is healthy."""
    struck: dict[str, Reason] = field(default_factory=dict)
    """Location to the reason why a candidate will not be tried any more."""

    def strike(self, route: Route, reason: Reason) -> None:
        """Take a candidate out, and remember why."""
        self.struck[route.location] = reason

    @property
    def is_exhausted(self) -> bool:
        """Whether every candidate has been struck out."""
        return self.candidates.by_location.keys() <= self.struck.keys()

    def left(self) -> list[Route]:
        """The candidates that may still be tried, in declaration order."""
        return [
            route
            for location, route in self.candidates.by_location.items()
            if location not in self.struck
        ]

    def reasons(self) -> dict[str, str]:
        """Location to reason, of every route that will not be tried."""
        return {**self.candidates.dropped, **self.struck}
