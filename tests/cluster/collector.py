"""A collector: takes OTLP over HTTP as a real one does, and keeps the spans for a test to read."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Event:
    """Something that happened in a span."""

    name: str
    at_ns: int
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Span:
    """A span as it came over the wire. Ids are hex; `parent` is "" at the root."""

    trace_id: str
    id: str
    parent: str
    name: str
    kind: str
    is_error: bool
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[Event]
    resource: dict[str, Any]
    children: list[Span] = field(default_factory=list)
    """In the order in which they began."""

    def child(self, name: str, number: int = 0) -> Span:
        """Its only child of this name, or the one with this number."""
        return [child for child in self.children if child.name == name][number]


class Collector:
    """Listens on loopback while it is entered."""

    def __init__(self) -> None:
        self.received: list[Span] = []
        self.requests = 0
        self.raw = b""
        """All bodies, as they came."""
        self.answers = 200
        """The status of the answers; only spans that are answered 200 are kept."""
        self.silent = threading.Event()
        """Set, requests are not answered until it is cleared, or for a few seconds."""

    @property
    def url(self) -> str:
        """What OTEL_EXPORTER_OTLP_ENDPOINT is set to."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def named(self, name: str) -> list[Span]:
        """All spans of a name."""
        return [span for span in self.received if span.name == name]

    def trace(self, trace_id: str) -> Span | None:
        """The trace's topmost span that has come, with those below it; `None` before it came."""
        spans = sorted(
            (span for span in self.received if span.trace_id == trace_id), key=lambda s: s.start_ns
        )
        by_id = {span.id: span for span in spans}
        root = None
        for span in spans:
            span.children.clear()
        for span in spans:
            parent = by_id.get(span.parent)
            if parent is None:
                root = span
            else:
                parent.children.append(span)
        return root

    def take(self, body: bytes) -> None:
        """Keep what a request holds."""
        self.raw += body
        request = ExportTraceServiceRequest.FromString(body)
        self.received += [
            _read(span, _attributes(of_resource.resource.attributes))
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    @contextmanager
    def listening(self) -> Iterator[Collector]:
        """Take spans until the end of this context."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self.silent.clear()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.requests += 1
                while collector.silent.is_set():
                    threading.Event().wait(0.02)
                known = self.path == "/v1/traces"
                status = collector.answers if known else 404
                if status == 200:
                    collector.take(body)
                answer = ExportTraceServiceResponse().SerializeToString()
                with contextlib.suppress(ConnectionError):  # it may not have waited
                    self.send_response(status)
                    self.send_header("content-type", "application/x-protobuf")
                    self.send_header("content-length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *args: object) -> None:
                pass

        return Handler


def _read(span: WireSpan, resource: dict[str, Any]) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        name=span.name,
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        is_error=span.status.code == Status.STATUS_CODE_ERROR,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        events=[
            Event(event.name, event.time_unix_nano, _attributes(event.attributes))
            for event in span.events
        ],
        resource=resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
