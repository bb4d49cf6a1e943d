"""A transport for attempts that are recorded: OpenTelemetry's instrumentation around one of ours.

The instrumentation is shown a request of nothing but method and address, so that no setting of
its own can put a credential into a span, and its spans tell a failure's class alone: the text may
quote what an upstream has sent. The transport behind it sends the true request, as part of the
trace. Bodies do not pass through here: a stream is relayed as without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import httpx
from opentelemetry.instrumentation.httpx import AsyncOpenTelemetryTransport
from opentelemetry.trace import Span, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.telemetry.names import ERROR_TYPE

_TRUE_REQUEST = "concord.request"


class TracedTransport(httpx.AsyncBaseTransport):
    """Sends over a transport that it does not own, under a span of its own."""

    def __init__(self, transport: httpx.AsyncBaseTransport, provider: TracerProvider) -> None:
        self._instrumented = AsyncOpenTelemetryTransport(
            _Behind(transport), tracer_provider=_Discreet(provider)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response with the body unread."""
        shown = httpx.Request(
            request.method,
            _shown(request.url),
            headers=[(b"host", request.url.netloc)],
            stream=httpx.ByteStream(b""),
            extensions={_TRUE_REQUEST: request},
        )
        return await self._instrumented.handle_async_request(shown)


@lru_cache(maxsize=1024)
def _shown(url: httpx.URL) -> httpx.URL:
    """What may be told of an address. They are few, and taking one apart costs much."""
    return url.copy_with(userinfo=b"", query=None, fragment=None)


class _Behind(httpx.AsyncBaseTransport):
    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport
        self._w3c = TraceContextTextMapPropagator()

    async def handle_async_request(self, shown: httpx.Request) -> httpx.Response:
        """Send the true request, with the span that is current now as its parent."""
        request: httpx.Request = shown.extensions[_TRUE_REQUEST]
        # Whatever propagators the environment names: those wrote to the request that is shown.
        self._w3c.inject(request.headers)
        return await self._transport.handle_async_request(request)


class _Discreet(TracerProvider):
    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider

    def get_tracer(self, *args: Any, **options: Any) -> Tracer:
        return _DiscreetTracer(self._provider.get_tracer(*args, **options))


class _DiscreetTracer(Tracer):
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def start_span(self, *args: Any, **options: Any) -> Span:
        return self._tracer.start_span(*args, **options)

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # it need be no decorator, too
        self, *args: Any, **options: Any
    ) -> Iterator[Span]:
        options |= {"record_exception": False, "set_status_on_exception": False}
        with self._tracer.start_as_current_span(*args, **options) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute(ERROR_TYPE, type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise
