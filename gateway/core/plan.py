"""The candidates of one request, as far as they can be judged before the store is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from gateway.core.limits import EndpointLimits
from gateway.core.offload import Offload
from gateway.core.overrides import Overrides
from gateway.core.reasons import Reason
from gateway.core.route import Model, Route

NO_OVERRIDES = Overrides()


class Candidates(Struct, frozen=True):
    """The routes of a model that requests of one kind may go to. Made once, shared by them all."""

    epoch: int
    """Of the run-time overrides that these follow."""

    by_location: Mapping[str, Route]
    """In declaration order."""
    table: tuple[tuple[str, float], ...]
    """Location and weight of each, as `admit` takes them."""
    limited: tuple[tuple[str, EndpointLimits], ...]
    """Locations of those that are limited, and in what."""
    dropped: Mapping[str, Reason]
    """Location to reason, of the model's other routes."""
    in_service: int
    """How many of the model's routes have a weight, whatever these requests ask of them."""
    offload: Offload | None = None
    """The policy in force."""
    reserve: str = ""
    """Location of the candidate that is kept for requests to be offloaded; empty for none."""

    @classmethod
    def of(
        cls,
        epoch: int,
        kept: Sequence[tuple[Route, float]],
        dropped: Mapping[str, Reason],
        *,
        in_service: int | None = None,
        offload: Offload | None = None,
        has_reserve: bool = True,
    ) -> Candidates:
        """Line the routes up with the weights in force. Unless told, no other is in service.

        With `has_reserve` the route that `offload` names is kept for requests to be offloaded.
        """
        table = tuple((route.location, weight) for route, weight in kept)
        limited = tuple(
            (route.location, route.limits) for route, _ in kept if not route.limits.is_empty
        )
        by_location = {route.location: route for route, _ in kept}
        is_kept = has_reserve and offload is not None and offload.location in by_location
        return cls(
            epoch=epoch,
            by_location=by_location,
            table=table,
            limited=limited,
            dropped=dropped,
            in_service=len(kept) if in_service is None else in_service,
            offload=offload,
            reserve=offload.location if offload and is_kept else "",
        )


class Plan(Struct, kw_only=True):
    """Which candidates may still serve a request. Shrinks as attempts fail; belongs to one request.

    What has been struck out stays in the table that `admit` gets, beside a list of it.
    """

    model: Model
    candidates: Candidates
    overrides: Overrides = NO_OVERRIDES
    """That the candidates follow."""
    pin: str | None = None
    """What an operator asks for: a provider's label or an endpoint id."""
    refusal: Exception | None = None
    """What to tell when there is no candidate, if it is not that none is healthy."""
    struck: dict[str, Reason] = field(default_factory=dict)
    """Location to the reason why a candidate will not be tried any more."""
    is_failover: bool = False
    """Whether an endpoint has failed the request, rather than refused it for what it is."""
    drained: dict[str, Reason] = field(default_factory=dict)
    """Location to the reason why a candidate's supply could not be drawn from, when it was chosen.
    That was no attempt."""

    def strike(self, route: Route, reason: Reason) -> None:
        """Take a candidate out, and remember why."""
        self.struck[route.location] = reason

    @property
    def has_reserve(self) -> bool:
        """Whether a candidate is kept for requests to be offloaded, and may still be tried."""
        reserve = self.candidates.reserve
        return bool(reserve) and reserve not in self.struck

    def unstrike(self, location: str) -> None:
        """Let a candidate be tried again."""
        self.struck.pop(location, None)

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
