"""A tracer whose spans can be read once they have ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler

from gateway.telemetry.names import LEGACY, GenAI
from gateway.telemetry.spans import DecidedIds, SpanTracer
from gateway.telemetry.tracing import Trace

PATH = "/v1/chat/completions"


class Recorder(SpanTracer):
    """Keeps all that it records; unless told otherwise everything but what a client exempts."""

    def __init__(self, sampler: Sampler | None = None, gen_ai: GenAI = LEGACY) -> None:
        self._exporter = InMemorySpanExporter()
        ids = DecidedIds()
        provider = TracerProvider(
            sampler=sampler or ParentBased(ALWAYS_ON), id_generator=ids, shutdown_on_exit=False
        )
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        super().__init__(provider, ids, gen_ai)

    def trace(self, headers: Mapping[str, str] | None = None) -> Trace:
        """Begin one as the chat endpoint does."""
        return self.begin(headers or {}, PATH)

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """All spans, or those of a name, in the order in which they have begun."""
        ended = self._exporter.get_finished_spans()
        named = (span for span in ended if name in (None, span.name))
        return sorted(named, key=lambda span: span.start_time or 0)

    def only(self, name: str | None = None) -> ReadableSpan:
        """The only span, or the only one of a name."""
        [span] = self.spans(name)
        return span

    def attributes(self, name: str | None = None) -> dict[str, Any]:
        """What that one says."""
        return dict(self.only(name).attributes or {})

    def outline(self) -> list[str]:
        """Every span as its path from the root, in the order in which they have begun."""
        by_id = {span.context.span_id: span for span in self.spans() if span.context}

        def path(span: ReadableSpan) -> str:
            above = by_id.get(span.parent.span_id) if span.parent else None
            return f"{path(above)} > {span.name}" if above else span.name

        return [path(span) for span in self.spans()]


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    """Name and attributes of what happened in a span."""
    return [(event.name, dict(event.attributes or {})) for event in span.events]
