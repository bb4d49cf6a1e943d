"""Routes served alone, as the app serves them."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from gateway.api.errors import on_gateway_error, on_http_exception
from gateway.errors import GatewayError


def client_of(routes: Sequence[Route], key: str = "") -> httpx.AsyncClient:
    """A client of these routes, who shows this key."""
    app = Starlette(
        routes=routes,
        exception_handlers={GatewayError: on_gateway_error, HTTPException: on_http_exception},
    )
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://t",
        headers={"x-api-key": key} if key else {},
    )
