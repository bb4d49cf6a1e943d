"""Circuits, on an operator's word."""

from __future__ import annotations

from msgspec import Struct

from gateway.admin.targets import NoSuchTarget, endpoints_of, route_of
from gateway.core.route import Model
from gateway.state.store import Store


class CircuitReset(Struct, frozen=True, kw_only=True):
    """An endpoint that counts as healthy again."""

    endpoint: str
    was: str
    """`open`, `half_open` or `closed`."""


async def reset_circuit(store: Store, model: Model, endpoint: str) -> CircuitReset:
    """Forget an endpoint's failures; what it holds stays.

    `endpoint` is a location or a full id. Raises `NoSuchTarget` and `StateUnavailable`.
    """
    route = route_of(model, endpoint)
    if route is None:
        raise NoSuchTarget(
            f"Model '{model.id}' has no endpoint '{endpoint}'. {endpoints_of(model)}"
        )
    was = await store.reset_circuit(model.id, location=route.location)
    return CircuitReset(endpoint=route.endpoint, was=was)
