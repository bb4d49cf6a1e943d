"""Whether traces are exported is what OpenTelemetry's standard variables say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gateway.telemetry.otlp import CannotTrace, is_asked_for, open_tracer
from gateway.telemetry.tracing import Tracer

URL = "http://127.0.0.1:4318"
BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": URL}


@pytest.mark.parametrize(
    "env",
    [
        BASE,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector.example/v1/traces"},
        {**BASE, "OTEL_TRACES_EXPORTER": "otlp"},
        {**BASE, "OTEL_SDK_DISABLED": "false"},
        {**BASE, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        {
            **BASE,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",  # for the other signals
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        },
    ],
)
def test_a_collector_asks_for_traces(env: dict[str, str]) -> None:
    assert is_asked_for(env)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": URL},
        {"OTEL_TRACES_EXPORTER": "otlp"},
        {**BASE, "OTEL_SDK_DISABLED": "TRUE"},
        {**BASE, "OTEL_TRACES_EXPORTER": "none"},
        {**BASE, "OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_without_a_collector_or_told_not_to_there_are_none(env: dict[str, str]) -> None:
    assert not is_asked_for(env)
    assert type(open_tracer(env, "r1")) is Tracer


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            {**BASE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; only http/protobuf is spoken here, which "
            "collectors take on port 4318",
        ),
        (
            {**BASE, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is 'http/json'; only http/protobuf is spoken here, "
            "which collectors take on port 4318",
        ),
        (
            {**BASE, "OTEL_TRACES_EXPORTER": "jaeger"},
            "OTEL_TRACES_EXPORTER is 'jaeger'; here it is otlp or none",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL such as http://127.0.0.1:4318",
        ),
        *(
            (
                {**BASE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url},
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is not a URL such as http://127.0.0.1:4318",
            )
            for url in ("grpc://user:sekrit@h", "http://[::1", "http://h:port", "http://h:65536")
        ),
    ],
)
def test_what_is_not_spoken_is_refused_with_what_is(env: dict[str, str], said: str) -> None:
    with pytest.raises(CannotTrace) as refused:
        open_tracer(env, "r1")

    assert str(refused.value) == said


def test_what_the_sdk_refuses_is_refused_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")

    with pytest.raises(CannotTrace, match="max_queue_size must be a positive integer"):
        open_tracer(BASE, "r1")


def test_what_the_instrumentation_refuses_is_refused_in_its_words() -> None:
    # In a process of its own, for this is judged when modules are loaded.
    start = f"from gateway.telemetry.otlp import open_tracer\nopen_tracer({BASE}, 'r1')"
    env = {**os.environ, "OTEL_PROPAGATORS": "tracecontext,nobodys"}
    done = subprocess.run(
        [sys.executable, "-c", start], env=env, capture_output=True, text=True, check=False
    )

    told = "CannotTrace: OpenTelemetry refuses its OTEL_ variables: Propagator nobodys not found"
    assert told in done.stderr.splitlines()[-1]


def test_without_traces_nothing_that_records_or_exports_them_is_loaded() -> None:
    look = (
        "import gateway.app, gateway.commands.serve, sys\n"
        "from gateway.telemetry.otlp import open_tracer\n"
        "open_tracer({}, 'r1')\n"
        "loads = ('opentelemetry.sdk.trace.', 'opentelemetry.exporter', 'google.protobuf',\n"
        "         'opentelemetry.instrumentation', 'requests')\n"
        "print([name for name in sys.modules if name.startswith(loads)])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
