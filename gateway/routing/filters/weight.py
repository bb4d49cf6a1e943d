"""A weight of 0 takes a route out of service."""

from __future__ import annotations

from gateway.core.reasons import Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Route


def weight(route: Route, chat: ChatRequest) -> Reason | None:
    """Never drawn, never pinned to, never failed over to."""
    return None if route.weight > 0 else Reason.WEIGHT_ZERO
