"""What a caller, or an endpoint, may use in a stretch of time."""

from __future__ import annotations

from msgspec import Struct


class Limit(Struct, frozen=True):
    """One number that must not be exceeded."""

    most: int
    """Requests, tokens, requests at a time, or billionths of a dollar."""
    is_shadow: bool = False
    """Whether what it would refuse is only counted."""
    is_fixed: bool = False
    """Whether its window begins with the first request in it, rather than slide."""


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one holder; `None` is none."""

    rpm: Limit | None = None
    tpm: Limit | None = None
    max_parallel_requests: Limit | None = None
    max_budget: Limit | None = None
    """In billionths of a US dollar."""
    budget_duration_ms: int = 0
    """After how long the budget is whole again; 0 is never."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return not (self.rpm or self.tpm or self.max_parallel_requests or self.max_budget)


class EndpointLimits(Struct, frozen=True, kw_only=True):
    """The limits of one endpoint; `None` is none."""

    rpm: Limit | None = None
    tpm: Limit | None = None
    """Tokens of prompts and of answers."""
    itpm: Limit | None = None
    """Of prompts."""
    otpm: Limit | None = None
    """Of answers."""
    max_parallel_requests: Limit | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return self == UNLIMITED

    @property
    def counts_tokens(self) -> bool:
        """Whether a request's size matters."""
        return bool(self.tpm or self.itpm or self.otpm)


UNLIMITED = EndpointLimits()


class Scope(Struct, frozen=True, kw_only=True):
    """A holder of limits that a request counts against."""

    kind: str
    """`key`, `user`, `team`, or `model` for a key's limits on one model."""
    id: str
    """Unique within its kind; of a `model` scope, `<key id>:<model id>`."""
    limits: Limits


class Left(Struct, frozen=True):
    """What is left of a limit."""

    most: int
    left: int
    reset_ms: int
    """In how long the limit will be whole again."""


class Room(Struct, frozen=True, kw_only=True):
    """What a caller may still use, where that is limited: of the tightest limit of each kind."""

    requests: Left | None = None
    tokens: Left | None = None


NO_ROOM = Room()
"""Of a caller without such limits."""
