"""Traces of real replicas, as a collector gets them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.admission.draws import draws
from tests.cluster.collector import Collector, Span
from tests.cluster.harness import HTTP, Cluster, Replica, body, wait_until

TTFT_MS = 100
A_THOUSAND_TIMES = (1e6, 1e3, 1.0, 1e-3)
"""Weights with which nearly any numbers draw the endpoints in the order of their declaration."""
REQUEST_ID = "traced-1"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector().listening() as collector:
        yield collector


@pytest.fixture(scope="module")
def exporting(
    tmp_path_factory: pytest.TempPathFactory, module_redis: str, collector: Collector
) -> Iterator[Cluster]:
    """Two replicas that export to the collector, over four engines."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        with Cluster(
            tmp_path_factory.mktemp("exporting"),
            module_redis,
            engines={name: {"ttft_ms": TTFT_MS} for name in ("a", "b", "c", "d")},
            weights=A_THOUSAND_TIMES,
            replicas=2,
        ) as cluster:
            yield cluster


@pytest.fixture
def cluster(exporting: Cluster) -> Cluster:
    exporting.reset()
    return exporting


def whole_trace(collector: Collector, trace_id: str, settled: int) -> Span:
    """A request's trace once its last settlement has come, which may be after the rest."""

    def is_there() -> Span | None:
        root = collector.trace(trace_id)
        whole = root and root.name.startswith("POST /") and count(root, "settle") == settled
        return root if whole else None

    return wait_until(is_there, "the whole trace")


def count(span: Span, name: str) -> int:
    return sum(child.name == name for child in span.children)


def outline(span: Span, depth: int = 0) -> list[str]:
    """The tree, two spaces for each step down."""
    below = [line for child in span.children for line in outline(child, depth + 1)]
    return [f"{'  ' * depth}{span.name} {span.kind}", *below]


def dropped(span: Span) -> list[tuple[str, str]]:
    return [
        (event.attributes["concord.endpoint"], event.attributes["concord.reason"])
        for event in span.events
    ]


def test_a_stream_that_failed_over_can_be_understood_from_its_trace_alone(
    cluster: Cluster, collector: Collector
) -> None:
    # Given four endpoints: one whose circuit is open, one that is being probed, one that fails
    a, b, c, d = (f"m:{engine.location}" for engine in cluster.engines)
    now_ms = int(time.time() * 1000)
    cluster.redis.hset(
        "gw:{m:m}:endpoints",
        mapping={
            f"{cluster.engines[0].location}:circuit": "open",
            f"{cluster.engines[0].location}:opened_at_ms": now_ms,
            f"{cluster.engines[1].location}:circuit": "half_open",
            f"{cluster.engines[1].location}:probe": "elsewhere.1",
            f"{cluster.engines[1].location}:probe_until_ms": now_ms + 20_000,
        },
    )
    cluster.engines[2].fault(status=503)

    # When a client asks, which has begun a trace of its own
    trace_id, client_span = "5a" * 16, "6b" * 8
    headers = {
        "traceparent": f"00-{trace_id}-{client_span}-01",
        "x-request-id": REQUEST_ID,
    }
    url = f"{cluster.replicas[1].url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body(stream=True), headers=headers) as answer:
        assert answer.read().endswith(b"data: [DONE]\n\n")
        assert answer.headers["x-concord-endpoint"] == d
    request = whole_trace(collector, trace_id, settled=2)

    # Then the tree tells its way, below the client's own span
    assert request.parent == client_span
    assert outline(request) == [
        "POST /v1/chat/completions SERVER",
        "  admit INTERNAL",
        "  attempt CLIENT",
        "    POST CLIENT",
        "  settle INTERNAL",
        "  admit INTERNAL",
        "  attempt CLIENT",
        "    POST CLIENT",
        "  settle INTERNAL",
    ]
    assert request.resource["service.name"] == "concord"
    assert request.resource["service.instance.id"] == cluster.replicas[1].id
    assert request.attributes["concord.request_id"] == REQUEST_ID
    assert request.attributes["concord.attempts"] == 2
    assert not request.is_error
    # And which endpoints were considered, why two were dropped, and which numbers drew the third
    decision = request.child("admit")
    assert decision.attributes["concord.candidates"] == [
        f"{endpoint.removeprefix('m:')}={weight:g}"
        for endpoint, weight in zip((a, b, c, d), A_THOUSAND_TIMES, strict=True)
    ]
    assert dropped(decision) == [(a, "circuit_open"), (b, "probe_in_flight")]
    assert decision.attributes["concord.dropped.count"] == 2
    assert decision.attributes["concord.draw.numbers"] == draws(REQUEST_ID, 1, 3)
    assert decision.attributes["concord.endpoint"] == c
    # And how that failed, and what was made of it
    failed = request.child("attempt")
    assert failed.is_error
    assert failed.attributes["concord.endpoint"] == c
    assert failed.attributes["error.type"] == "http_503"
    assert request.child("settle").attributes["concord.outcome"] == "failure"
    # And who was left
    second = request.child("admit", 1)
    assert set(dropped(second)) == {
        (a, "circuit_open"),
        (b, "probe_in_flight"),
        (c, "already_attempted"),
    }
    assert second.attributes["concord.order"] == "declared"
    served = request.child("attempt", 1)
    assert not served.is_error
    assert served.attributes["concord.endpoint"] == d
    assert served.attributes["gen_ai.operation.name"] == "chat"
    assert served.attributes["gen_ai.usage.output_tokens"] > 0
    # And where the time went: each part after the one before, and most of it in the last attempt
    parts = request.children
    assert [part.start_ns for part in parts] == sorted(part.start_ns for part in parts)
    for part in parts[:-1]:
        assert request.start_ns <= part.start_ns <= part.end_ns <= request.end_ns
    [first_output] = served.events
    assert first_output.name == "first_output"
    assert served.attributes["concord.ttft_ms"] >= TTFT_MS
    assert served.start_ns < served.child("POST").end_ns <= first_output.at_ns <= served.end_ns


def test_the_circuit_that_an_attempt_opened_is_told(cluster: Cluster, collector: Collector) -> None:
    cluster.redis.hset("gw:{m:m}:endpoints", f"{cluster.engines[0].location}:failures", 2)
    cluster.engines[0].fault(status=500)
    trace_id = "7c" * 16

    headers = {"traceparent": f"00-{trace_id}-{'8d' * 8}-01"}
    answer = HTTP.post(f"{cluster.url}/v1/chat/completions", json=body(), headers=headers)

    assert answer.status_code == 200
    request = whole_trace(collector, trace_id, settled=2)
    assert request.child("settle").attributes["concord.circuit"] == "opened"


def test_a_trace_that_the_client_does_not_sample_is_not_exported(
    cluster: Cluster, collector: Collector
) -> None:
    unsampled, sampled = "9e" * 16, "af" * 16
    for trace_id, flags in ((unsampled, "00"), (sampled, "01")):
        headers = {"traceparent": f"00-{trace_id}-{'8d' * 8}-{flags}"}
        url = f"{cluster.url}/v1/chat/completions"
        assert HTTP.post(url, json=body(), headers=headers).status_code == 200

    whole_trace(collector, sampled, settled=1)
    assert collector.trace(unsampled) is None


def test_no_secret_reaches_the_collector(cluster: Cluster, collector: Collector) -> None:
    trace_id = "b1" * 16
    headers = {
        "traceparent": f"00-{trace_id}-{'8d' * 8}-01",
        "authorization": "Bearer canary-key",
        "user-agent": "canary-agent",
    }
    url = f"{cluster.url}/v1/chat/completions?key=canary-query"
    assert HTTP.post(url, json=body("canary-prompt"), headers=headers).status_code == 200

    whole_trace(collector, trace_id, settled=1)
    assert b"canary" not in collector.raw
    assert cluster.redis_url.encode() not in collector.raw


def test_a_replica_that_stops_sends_what_is_left(
    tmp_path: Path, module_redis: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a replica that would export in a minute
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/v1/traces")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    with Cluster(tmp_path, module_redis, replicas=1) as cluster:
        trace_id = "c2" * 16
        headers = {"traceparent": f"00-{trace_id}-{'8d' * 8}-01"}
        HTTP.post(f"{cluster.url}/v1/chat/completions", json=body(), headers=headers)
        assert collector.trace(trace_id) is None

        # When it stops
        assert cluster.replicas[0].stop() == 0

    # Then the whole trace is there, the settlement after the answer included
    request = collector.trace(trace_id)
    assert request is not None
    assert [part.name for part in request.children] == ["admit", "attempt", "settle"]


def test_a_collector_that_is_away_costs_no_request_and_one_line(
    tmp_path: Path, module_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a collector that refuses everything
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with Collector().listening() as refusing:
        refusing.answers = 400
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refusing.url)
        with Cluster(tmp_path, module_redis, replicas=1) as cluster:
            [replica] = cluster.replicas

            # When requests are served, until several batches have been refused
            def refused_thrice() -> bool:
                url = f"{cluster.url}/v1/chat/completions"
                assert HTTP.post(url, json=body()).status_code == 200
                return refusing.requests >= 3

            wait_until(refused_thrice, "three refused batches")

            # Then one line tells of it, without a traceback, and the replica ends as it should
            assert replica.stop() == 0
            assert len(replica.events("traces_trouble")) == 1
            assert "Traceback" not in replica.text()


def test_a_replica_that_cannot_export_as_asked_says_so_and_does_not_start(
    tmp_path: Path, exporting: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    replica = Replica("refusing", tmp_path, exporting.config, exporting.redis_url)

    replica.start()

    assert replica.wait() == 1
    assert replica.text() == (
        "concord serve: OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; only http/protobuf is spoken here, "
        "which collectors take on port 4318\n"
    )
