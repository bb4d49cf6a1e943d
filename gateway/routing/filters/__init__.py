"""Static reasons against a route, one file each, in the order in which they are asked.

A filter MUST be pure: same route and request, same answer; no I/O. It returns why the route cannot
serve the request, or `None`.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.core.reasons import Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Route
from gateway.routing.filters.modality import modality

Filter = Callable[[Route, ChatRequest], Reason | None]

FILTERS: tuple[Filter, ...] = (modality,)
