"""A route serves only the kinds of input that it declares."""

from __future__ import annotations

from gateway.core.reasons import Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Route


def modality(route: Route, chat: ChatRequest) -> Reason | None:
    """Every non-text kind in the request must be among the route's."""
    return None if chat.modalities <= route.input_modalities else Reason.MODALITY
