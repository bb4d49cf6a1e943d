"""What all parts of the operator surface have in common: who comes in, and what is noted."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin import door
from gateway.admin.providers import HalfDone
from gateway.auth.keys import Authenticator
from gateway.core.caller import Caller
from gateway.errors import StateUnavailable
from gateway.telemetry.logs import event

Handler = Callable[[Request, Caller], Awaitable[Any]]


class Surface:
    """A part of the surface: routes whose handlers are told which admin asks."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def _route(self, path: str, **handlers: Handler) -> Route:
        """One route for all methods of a path, so that a 405 can name them."""

        async def endpoint(request: Request) -> Response:
            caller = await door.admin(request, self._authenticator)
            method = "GET" if request.method == "HEAD" else request.method
            found = await handlers[method](request, caller)
            return found if isinstance(found, Response) else as_json(found)

        return Route(path, endpoint, methods=list(handlers))

    @contextlib.contextmanager
    def _noted_when_unsure(self, name: str, caller: Caller, **fields: Any) -> Iterator[None]:
        """Note a change that may have happened, or half of it, although it was not done."""
        try:
            yield
        except HalfDone:
            self._note(name, caller, **fields, is_sure=False)
            raise
        except StateUnavailable as error:
            if error.may_have_happened:
                self._note(name, caller, **fields, is_sure=False)
            raise

    @staticmethod
    def _note(name: str, caller: Caller, **fields: Any) -> None:
        event(name, admin=caller.id, **fields)


def as_json(content: object, status: int = 200) -> Response:
    """An answer."""
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")
