"""Send recorded spans to a collector, over OTLP, in the background.

Nothing here holds a request up: ended spans go into a bounded queue, a thread takes them from
there, and when it does not keep up the oldest are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from gateway import __version__
from gateway.telemetry.logs import event
from gateway.telemetry.names import GenAI
from gateway.telemetry.spans import DecidedIds, SpanTracer

CLOSE_S = 2.0
"""How long a stopping replica waits for its last spans to leave."""
LAST_TRY_S = 0.7
"""How long each of the last batches may take: less than the pause before a retry."""
QUIET_S = 30.0
"""At most one line in this time from each part of OpenTelemetry."""

_LIBRARY = logging.getLogger("opentelemetry")


class ExportingTracer(SpanTracer):
    """Records requests and exports them.

    Sampler, endpoint, headers, TLS, queue and delays are as OpenTelemetry's standard variables
    say. Its own complaints go to our log, few and without secrets.
    """

    def __init__(self, gen_ai: GenAI, replica_id: str) -> None:
        _LIBRARY.handlers = [_FewWords()]
        _LIBRARY.propagate = False
        self._exporter = _Exporter()
        ids = DecidedIds()
        provider = TracerProvider(
            resource=_resource(replica_id), id_generator=ids, shutdown_on_exit=False
        )
        provider.add_span_processor(BatchSpanProcessor(self._exporter))
        super().__init__(provider, ids, gen_ai)

    async def close(self) -> None:
        """Send what has not been sent yet, for at most CLOSE_S. Spans ended later are lost."""
        loop, flushed = asyncio.get_running_loop(), asyncio.Event()

        def flush() -> None:
            self.provider.shutdown()
            with contextlib.suppress(RuntimeError):  # by now the loop may be closed
                loop.call_soon_threadsafe(flushed.set)

        self._exporter.hurry()
        # Not a thread of the loop's: the process would wait for that one to end.
        threading.Thread(target=flush, daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_S):
                await flushed.wait()
        except TimeoutError:
            _tell("the last spans could not be sent in time")


class _Exporter(SpanExporter):
    """Patient while the replica runs: a batch is tried again, for some ten seconds.

    Once it stops, each batch gets one short try, and after one that failed there are no more.
    """

    def __init__(self) -> None:
        self._patient = OTLPSpanExporter()
        self._hasty = OTLPSpanExporter(timeout=LAST_TRY_S)
        self._is_stopping = False
        self._has_given_up = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch. Runs in the exporting thread."""
        if not self._is_stopping:
            result = self._patient.export(spans)
            if result is SpanExportResult.SUCCESS or not self._is_stopping:
                return result
        if self._has_given_up:
            return SpanExportResult.FAILURE
        result = self._hasty.export(spans)
        self._has_given_up = result is not SpanExportResult.SUCCESS
        return result

    def hurry(self) -> None:
        """Break off any wait for a retry, and wait no more."""
        self._is_stopping = True
        self._patient.shutdown()  # type: ignore[no-untyped-call]

    def shutdown(self) -> None:
        """Close for good."""
        self._hasty.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is kept here."""
        return True


class _FewWords(logging.Handler):
    """Passes on the first complaint of each logger in QUIET_S, and counts the others.

    Of its arguments only numbers are shown, and of exceptions the class: the rest may hold a
    header for the collector, its address, or what a client has sent.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count one."""
        # A batch that is tried again is no news; one that is given up is.
        if record.name == OTLPSpanExporter.__module__ and record.levelno < logging.ERROR:
            return
        said_s, left_out = self._said.get(record.name, (-QUIET_S, 0))
        if record.created - said_s < QUIET_S:
            self._said[record.name] = (said_s, left_out + 1)
            return
        self._said[record.name] = (record.created, 0)
        arguments = record.args if isinstance(record.args, tuple) else ()
        problem = record.msg % tuple(map(_shown, arguments))
        _tell(problem, part=record.name, left_out=left_out)


def _tell(problem: str, **fields: object) -> None:
    """A warning whatever it is, for no request notices."""
    event("traces_trouble", level=logging.WARNING, problem=problem, **fields)


def _shown(argument: object) -> object:
    if argument is None or isinstance(argument, int | float):
        return argument
    return type(argument).__name__ if isinstance(argument, BaseException) else "…"


def _resource(replica_id: str) -> Resource:
    """What all spans of this replica share; the standard variables outrank our own words."""
    ours = {
        "service.name": "concord",
        "service.version": __version__,
        "service.instance.id": replica_id,
    }
    return Resource.create(ours).merge(OTELResourceDetector().detect())
