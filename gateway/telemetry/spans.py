"""Traces that are recorded, as OpenTelemetry spans. Never a prompt, an answer or a key in one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from gateway import __version__
from gateway.core.outcome import Outcome
from gateway.core.request import Usage
from gateway.core.route import Route
from gateway.telemetry import names
from gateway.telemetry.access import RequestRecord
from gateway.telemetry.names import GenAI
from gateway.telemetry.tracing import UNTRACED, Step, Trace, Tracer, received

MAX_DROPPED = 16
"""How many dropped candidates one decision tells of."""
MAX_CANDIDATES = 64

_NO_CONTEXT = Context()
_W3C = TraceContextTextMapPropagator()


class SpanTracer(Tracer):
    """Records the requests that the provider's sampler takes.

    A request continues the trace that its client has begun, or begins one. Not sampled, it costs
    a few microseconds and still carries a trace upstream.
    """

    def __init__(self, provider: TracerProvider, ids: DecidedIds, gen_ai: GenAI) -> None:
        """`ids` MUST be the provider's."""
        self.provider: TracerProvider = provider
        self._tracer = provider.get_tracer("concord", __version__)
        self._ids = ids
        self._gen_ai = gen_ai
        self._bound = _bound(provider.sampler)

    def begin(self, headers: Mapping[str, str], path: str) -> Trace:
        """The trace of a request that has just come; `headers` by lower-case name."""
        name = f"POST {path}"
        came = received(headers)
        if came is UNTRACED:
            # Most requests come so and most are not sampled: those are spared a span that
            # records nothing.
            trace_id = self._ids.generate_trace_id()
            if self._drops(trace_id, name):
                return _unrecorded(trace_id, self._ids.generate_span_id())
            self._ids.decided = trace_id
            parent = _NO_CONTEXT
        else:
            parent = _W3C.extract(came.headers, _NO_CONTEXT)
        span = self._tracer.start_span(name, parent, SpanKind.SERVER)
        return RecordedTrace(self._tracer, span, self._gen_ai) if span.is_recording() else came

    def _drops(self, trace_id: int, name: str) -> bool:
        """Whether a trace that begins here is not to be recorded."""
        if self._bound is not None:
            return trace_id & TraceIdRatioBased.TRACE_ID_LIMIT >= self._bound
        sampler = self.provider.sampler
        decision = sampler.should_sample(_NO_CONTEXT, trace_id, name, SpanKind.SERVER).decision
        return decision is Decision.DROP


class DecidedIds(RandomIdGenerator):
    """Random ids, except that a trace on which was decided before it begins gets the id decided."""

    def __init__(self) -> None:
        self.decided: int | None = None

    def generate_trace_id(self) -> int:
        """The id of a new trace."""
        decided, self.decided = self.decided, None
        return super().generate_trace_id() if decided is None else decided


class RecordedTrace(Trace):
    """A request's server span, and the spans below it.

    It has no headers: the instrumented transport writes those, so that the upstream continues
    from its span.
    """

    is_recorded = True

    def __init__(self, tracer: trace.Tracer, span: Span, gen_ai: GenAI) -> None:
        super().__init__(f"{span.get_span_context().trace_id:032x}", {})
        self._tracer = tracer
        self._span = span
        self._gen_ai = gen_ai
        self._context = trace.set_span_in_context(span, _NO_CONTEXT)

    def admitting(
        self, model_id: str, attempt: int, order: str, candidates: Sequence[tuple[str, float]]
    ) -> Step:
        """The decision on an attempt."""
        return _Admit(
            self._child(
                names.ADMIT,
                {
                    names.ATTEMPT_NUMBER: attempt,
                    names.ORDER: order,
                    names.CANDIDATES: [
                        f"{at}={weight:g}" for at, weight in candidates[:MAX_CANDIDATES]
                    ],
                },
            ),
            model_id,
        )

    def attempting(self, route: Route, record: RequestRecord) -> Step:
        """An attempt, the last one of the record."""
        gen_ai = self._gen_ai
        attributes: dict[str, AttributeValue] = {
            names.ATTEMPT_NUMBER: len(record.attempts),
            names.ENDPOINT: route.endpoint,
            names.PROVIDER: route.provider,
            gen_ai.operation: "chat",
            gen_ai.provider: route.kind.partition("[")[0],
            gen_ai.model: route.upstream_model,
        }
        if gen_ai.stream:
            attributes[gen_ai.stream] = record.stream
        if record.attempts[-1].hedge:
            attributes[names.HEDGE] = True
        return _Attempt(
            self._child(names.ATTEMPT, attributes, SpanKind.CLIENT), gen_ai, self._context
        )

    def gating(self, route: Route) -> Step:
        """The way through a gate."""
        attributes = {names.ENDPOINT: route.endpoint}
        # Below the attempt, which is current.
        return _Recorded(self._tracer.start_span(names.GATE, attributes=attributes))

    def settling(self, route: Route, outcome: Outcome) -> Step:
        """The end of an attempt's claim."""
        attributes = {names.ENDPOINT: route.endpoint, names.OUTCOME: outcome.value}
        return _Recorded(self._child(names.SETTLE, attributes))

    def end(self, record: RequestRecord) -> None:
        """The request has ended."""
        _put(
            self._span,
            {
                names.HTTP_METHOD: "POST",
                names.HTTP_ROUTE: record.route,
                names.URL_PATH: record.route,
                names.HTTP_STATUS: record.status or None,
                names.ERROR_TYPE: record.error_type,
                names.REQUEST_ID: record.request_id,
                names.CALLER: record.caller,
                names.MODEL: record.model,
                names.CONFIG_DIGEST: record.config_digest,
                names.ENDPOINT: record.endpoint,
                names.STREAM: record.stream,
                names.ATTEMPTS: len(record.attempts),
                names.TTFT_MS: record.ttft_ms,
                names.OVERHEAD_MS: record.overhead_ms,
                names.CLIENT_CANCELLED: record.client_cancelled or None,
            },
        )
        # A failure after status 200, of which only the stream has told, is one, too.
        if record.error_type and (record.status >= 500 or record.status == 200):
            self._span.set_status(StatusCode.ERROR)
        self._span.end()

    def _child(
        self,
        name: str,
        attributes: Mapping[str, AttributeValue],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        return self._tracer.start_span(name, self._context, kind, attributes)


class _Recorded(Step):
    """A step with a span, which has begun when this is made."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the span."""
        if isinstance(error, asyncio.CancelledError):  # a client that left is no error
            self._span.set_attribute(names.ERROR_TYPE, "cancelled")
        elif error is not None:
            self._span.set_attribute(names.ERROR_TYPE, _own_name(error))
            self._span.set_status(StatusCode.ERROR)
        self._span.end()

    def queued(self, waited_s: float) -> None:
        """The attempt stood in line for so long."""
        self._span.set_attribute(names.QUEUE_MS, round(waited_s * 1000, 2))

    def turned(self, circuit: str) -> None:
        """The endpoint's circuit was turned."""
        if circuit:
            self._span.set_attribute(names.CIRCUIT, circuit)


class _Admit(_Recorded):
    def __init__(self, span: Span, model_id: str) -> None:
        super().__init__(span)
        self._model_id = model_id

    def admitted(self, route: Route, numbers: Sequence[float], *, is_probe: bool, pin: str) -> None:
        """A claim was granted."""
        _put(
            self._span,
            {
                names.ENDPOINT: route.endpoint,
                names.DRAW_NUMBERS: list(numbers),
                names.PROBE: is_probe,
                names.PIN: pin or None,
            },
        )

    def stale(self) -> None:
        """Nothing was decided."""
        self._span.set_attribute(names.STALE, True)

    def dropped(self, *reasons: Mapping[str, str]) -> None:
        """These were dropped."""
        together = {location: why for some in reasons for location, why in some.items()}
        self._span.set_attribute(names.DROPPED_COUNT, len(together))
        for location, reason in list(together.items())[:MAX_DROPPED]:
            self._span.add_event(
                names.CANDIDATE_DROPPED,
                {names.ENDPOINT: f"{self._model_id}:{location}", names.REASON: str(reason)},
            )


class _Attempt(_Recorded):
    """Current while it lasts, so that the call over HTTP finds its parent."""

    def __init__(self, span: Span, gen_ai: GenAI, parent: Context) -> None:
        super().__init__(span)
        self._gen_ai = gen_ai
        self._context = trace.set_span_in_context(span, parent)
        self._token: Token[Context] | None = None
        self._began_s, self._began_ns = time.perf_counter(), time.time_ns()

    def __enter__(self) -> Self:
        """Make it current."""
        self._token = context.attach(self._context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        assert self._token is not None
        context.detach(self._token)
        super().__exit__(kind, error, traceback)

    def first_output(self) -> None:
        """It has output."""
        ttft_ms = round((time.perf_counter() - self._began_s) * 1000, 2)
        self._span.add_event(
            names.FIRST_OUTPUT, timestamp=self._began_ns + int(ttft_ms * 1_000_000)
        )
        self._span.set_attribute(names.TTFT_MS, ttft_ms)
        if self._gen_ai.ttft_s:
            self._span.set_attribute(self._gen_ai.ttft_s, ttft_ms / 1000)

    def used(self, usage: Usage) -> None:
        """It has used so much."""
        self._span.set_attributes(
            {
                self._gen_ai.input_tokens: usage.prompt_tokens,
                self._gen_ai.output_tokens: usage.completion_tokens,
                self._gen_ai.cached_tokens: usage.cached_tokens,
            }
        )


def _bound(sampler: Sampler) -> int | None:
    """From which number on the end of a new trace's id says that it is not sampled.

    `None` where the sampler looks at more. Asking it takes ten times as long as comparing numbers.
    """
    root = sampler._root if isinstance(sampler, ParentBased) else sampler
    return root.bound if type(root) is TraceIdRatioBased else None


def _unrecorded(trace_id: int, span_id: int) -> Trace:
    """A trace that we begin, and tell the upstream not to record either."""
    shown = f"{trace_id:032x}"
    return Trace(shown, {"traceparent": f"00-{shown}-{span_id:016x}-00"})


def _own_name(error: BaseException) -> str:
    """What a failure calls itself: an attempt's has an `error_type`, a request's a `code`."""
    own: Any = getattr(error, "error_type", None) or getattr(error, "code", None)
    return str(own or type(error).__name__)


def _put(span: Span, attributes: Mapping[str, AttributeValue | None]) -> None:
    span.set_attributes({name: value for name, value in attributes.items() if value is not None})
