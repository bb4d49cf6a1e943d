"""Spans reach a collector in the background, and one that is away disturbs nobody."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway import __version__
from gateway.telemetry import export
from gateway.telemetry.access import RequestRecord
from gateway.telemetry.export import ExportingTracer
from gateway.telemetry.logs import JsonFormatter
from gateway.telemetry.names import LEGACY
from tests.cluster.collector import Collector
from tests.cluster.load import until

PATH = "/v1/chat/completions"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector().listening() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield collector


@pytest.fixture(autouse=True)
def library_log() -> Iterator[None]:
    """A tracer turns the library's log over to ours; that ends with the test."""
    library = logging.getLogger("opentelemetry")
    before = library.handlers, library.propagate
    yield
    library.handlers, library.propagate = before


@pytest.fixture
def troubles(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    def lines() -> list[dict[str, Any]]:
        lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
        return [line for line in lines if line["msg"] == "traces_trouble"]

    return lines


def serve_one(tracer: ExportingTracer) -> None:
    tracer.begin({}, PATH).end(RequestRecord(request_id="r-1", route=PATH))


async def test_spans_arrive_by_themselves_with_who_they_are_from(collector: Collector) -> None:
    tracer = ExportingTracer(LEGACY, "r1a2b")

    serve_one(tracer)
    await until(lambda: collector.received, "spans")

    [span] = collector.received
    assert (span.name, span.kind) == (f"POST {PATH}", "SERVER")
    assert span.resource["service.name"] == "concord"
    assert span.resource["service.instance.id"] == "r1a2b"
    assert span.resource["service.version"] == __version__
    await tracer.close()


async def test_the_standard_variables_outrank_our_own_words(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gateway-eu")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    tracer = ExportingTracer(LEGACY, "r1")

    serve_one(tracer)
    await tracer.close()

    [span] = collector.received
    assert span.resource["service.name"] == "gateway-eu"
    assert span.resource["deployment.environment.name"] == "test"


@pytest.mark.parametrize(("ratio", "count"), [("0", 0), ("1", 3)])
async def test_the_standard_sampler_decides(
    ratio: str, count: int, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    tracer = ExportingTracer(LEGACY, "r1")

    for _ in range(3):
        serve_one(tracer)
    await tracer.close()

    assert len(collector.received) == count


async def test_a_stop_sends_what_is_left(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    tracer = ExportingTracer(LEGACY, "r1")
    for _ in range(600):  # more than a batch
        serve_one(tracer)

    await tracer.close()

    assert len(collector.received) == 600


async def test_a_stop_does_not_wait_for_retries(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a collector that is overloaded, and a batch that waits to be tried again
    monkeypatch.setattr(export, "CLOSE_S", 60.0)
    collector.answers = 503
    tracer = ExportingTracer(LEGACY, "r1")
    serve_one(tracer)
    await until(lambda: collector.requests, "an export")
    asked = collector.requests

    # When the replica stops with more spans left
    for _ in range(1200):
        serve_one(tracer)
    await tracer.close()

    # Then each of the batches that waited or were under way had one more try at most, and after
    # the first that failed so there was none
    assert collector.requests - asked <= 2
    assert collector.received == []


async def test_a_stop_does_not_wait_for_a_collector_that_keeps_silent(
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    troubles: Callable[[], list[dict[str, Any]]],
) -> None:
    monkeypatch.setattr(export, "CLOSE_S", 0.1)
    tracer = ExportingTracer(LEGACY, "r1")
    collector.silent.set()
    serve_one(tracer)
    await until(lambda: collector.requests, "an export")

    await tracer.close()

    assert collector.silent.is_set()
    assert collector.received == []
    assert [line["problem"] for line in troubles()] == ["the last spans could not be sent in time"]


async def test_failed_exports_are_told_once_in_a_while(
    collector: Collector, troubles: Callable[[], list[dict[str, Any]]]
) -> None:
    # Given a collector that refuses every batch
    collector.answers = 400
    tracer = ExportingTracer(LEGACY, "r1")
    for number in range(1, 4):
        serve_one(tracer)
        await until(lambda count=number: collector.requests == count, "an export")
    await tracer.close()

    [line] = troubles()
    assert line["level"] == "warning"
    assert line["part"] == "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    assert line["problem"] == "Failed to export … batch code: 400, reason: …"


async def test_an_export_s_trouble_shows_neither_an_address_nor_a_trace(
    monkeypatch: pytest.MonkeyPatch, troubles: Callable[[], list[dict[str, Any]]]
) -> None:
    url = "http://user:canary@127.0.0.1:1/canary?token=canary"  # nobody listens there
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "canary")  # malformed
    tracer = ExportingTracer(LEGACY, "r1")
    serve_one(tracer)
    await tracer.close()

    assert len(troubles()) == 2
    assert "canary" not in json.dumps(troubles())
    assert "Traceback" not in json.dumps(troubles())


async def test_what_a_client_sends_as_trace_state_floods_no_log(
    collector: Collector, troubles: Callable[[], list[dict[str, Any]]]
) -> None:
    tracer = ExportingTracer(LEGACY, "r1")
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "canary canary"}

    for _ in range(5):
        tracer.begin(headers, PATH)
    await tracer.close()

    assert len(troubles()) == 1
    assert "canary" not in json.dumps(troubles())
