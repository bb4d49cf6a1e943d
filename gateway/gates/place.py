"""A place at a gate, and what it means to get none.

    UpstreamSaturated           no place within the time one waits for it
    └── UpstreamQueueWaitExpired    nor before the request's own deadline

Neither has an HTTP status or says anything against an endpoint: nothing has been sent.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.core.gate import Gate


class Place(Struct, kw_only=True, eq=False):
    """Leave for one attempt to go upstream. MUST be left, once the attempt is over."""

    gate: Gate
    ticket: str
    number: int = 0
    """In line; 0 of one that was free."""
    is_over: bool = False
    """Taken over the limit."""
    is_held: bool = False
    """Granted, confirmed and not left yet."""


class UpstreamSaturated(Exception):
    """No place became free in time; another endpoint may have one."""

    def __init__(self, gate: Gate) -> None:
        super().__init__("the upstream is taking as many requests as it may")
        self.gate = gate


class UpstreamQueueWaitExpired(UpstreamSaturated):
    """The request's own deadline came before a place."""
