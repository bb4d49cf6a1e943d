"""The front door: hot endpoints are reached without the layers that they do not need."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send


class Doors(Struct, frozen=True):
    """What one configuration serves: hot endpoints by path, and the application for all else.

    A hot endpoint MUST answer every error itself, its own bugs included.
    """

    hot: Mapping[str, ASGIApp]
    app: ASGIApp


class FrontDoor:
    """Sends a POST on a hot path straight to its endpoint, and all else through the application.

    Putting other doors in place is one step: a request goes to the end by those it came in by.
    """

    def __init__(self, doors: Doors) -> None:
        self.doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on."""
        doors = self.doors
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = doors.hot.get(scope["path"])
            if endpoint is not None:
                return await endpoint(scope, receive, send)
        await doors.app(scope, receive, send)
