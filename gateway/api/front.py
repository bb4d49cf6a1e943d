"""The front door: hot endpoints are reached without the layers that they do not need."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send


class FrontDoor:
    """Sends a POST on a hot path straight to its endpoint, and all else through the application.

    A hot endpoint MUST answer every error itself, its own bugs included.
    """

    def __init__(self, hot: Mapping[str, ASGIApp], app: ASGIApp) -> None:
        self._hot = hot
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on."""
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = self._hot.get(scope["path"])
            if endpoint is not None:
                return await endpoint(scope, receive, send)
        await self._app(scope, receive, send)
