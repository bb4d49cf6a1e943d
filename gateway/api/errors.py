"""Errors that no endpoint handles: unknown paths, wrong methods, our own bugs."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.request import FreshIds, headers_of, peer_of, request_id
from gateway.api.responses import error_body, error_headers
from gateway.auth.addresses import Proxies
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.telemetry.logs import bug

NO_PROXIES = Proxies(())


class NoSuchPath(NotFound):
    """Nothing is served under this path."""


class WrongMethod(InvalidRequest):
    """The path exists, but not for this method."""

    status = 405
    code = "method_not_allowed"


async def on_gateway_error(request: Request, error: Exception) -> Response:
    """Answer an error that an endpoint raised."""
    assert isinstance(error, GatewayError)
    return _response(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer Starlette's own 404 and 405 in our shape."""
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.scope['path']}"
    if error.status_code == 405:
        response = _response(WrongMethod(f"{what} is not allowed."))
        response.headers.update(error.headers or {})
        return response
    return _response(NoSuchPath(f"{what} does not exist."))


def _response(error: GatewayError) -> Response:
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return Response(
        error_body(error),
        status_code=error.status,
        headers=headers,
        media_type="application/json",
    )


class LastResort:
    """Outermost: every answer carries its request's id, and a bug becomes a 500 in our shape."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._fresh_id = FreshIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and catch what nobody expected."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        # Nothing is drawn here, so ids of clients behind a proxy need not be kept.
        own_id = request_id(headers_of(scope), peer_of(scope), NO_PROXIES, self._fresh_id).encode()
        started = False

        async def named_send(message: Message) -> None:
            nonlocal started
            if not started:
                started = True
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", own_id)]
            await send(message)

        try:
            await self._app(scope, receive, named_send)
        except Exception:  # the boundary: whatever it is, the client gets an answer
            bug(request_id=own_id.decode())
            if started:
                raise
            await _response(GatewayError("Internal error."))(scope, receive, named_send)
