"""The HTTP request of an attempt: what all requests of a route have in common, and what its own."""

from __future__ import annotations

from typing import Any

import httpx
from msgspec import Struct

from gateway import __version__
from gateway.core.request import ChatRequest
from gateway.core.route import Route
from gateway.protocols.openai_chat import write_body
from gateway.telemetry.tracing import Trace


class Requests:
    """Builds requests. Remembers where each route's go."""

    def __init__(self) -> None:
        self._targets: dict[tuple[str, str], _Target] = {}

    def build(
        self,
        route: Route,
        key: str | None,
        chat: ChatRequest,
        *,
        request_id: str,
        priority: int | None,
        trace: Trace,
    ) -> httpx.Request:
        """Build a request. Of the client's headers none is in it but those of its trace."""
        target = self._target(route)
        body = write_body(chat, route, priority)
        headers = [
            *target.headers,
            (b"accept", b"text/event-stream" if chat.stream else b"application/json"),
            (b"x-request-id", request_id.encode()),
            (b"content-length", b"%d" % len(body)),
        ]
        if key is not None:
            headers.append((b"authorization", b"Bearer " + key.encode()))
        for name, value in trace.headers.items():
            headers.append((name.encode(), value.encode()))
        # Whole headers and a stream: httpx then derives nothing, which would cost most of a call.
        return httpx.Request(
            "POST",
            target.url,
            headers=headers,
            stream=httpx.ByteStream(body),
            extensions=target.extensions,
        )

    def _target(self, route: Route) -> _Target:
        key = (route.model_id, route.location)
        target = self._targets.get(key)
        if target is None or target.route is not route:
            target = self._targets[key] = _Target.of(route)
        return target


class _Target(Struct, frozen=True):
    """Where a route's requests go, and what they all carry."""

    route: Route
    url: httpx.URL
    headers: tuple[tuple[bytes, bytes], ...]
    extensions: dict[str, Any]

    @classmethod
    def of(cls, route: Route) -> _Target:
        """Spell it out. A base URL without a path gets `/v1`."""
        base = httpx.URL(route.base_url)
        url = base.copy_with(path=f"{base.path.rstrip('/') or '/v1'}/chat/completions")
        headers = (
            (b"host", url.netloc),
            (b"content-type", b"application/json"),
            (b"accept-encoding", b"identity"),
            (b"user-agent", f"concord/{__version__}".encode()),
        )
        connect_s = route.timeouts.connect
        timeout = {"connect": connect_s, "pool": connect_s, "read": None, "write": None}
        return cls(route, url, headers, {"timeout": timeout})
