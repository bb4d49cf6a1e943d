"""Whether traces are exported: as OpenTelemetry's standard variables say, else not."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from urllib.parse import urlsplit

from gateway.telemetry.names import gen_ai
from gateway.telemetry.tracing import Tracer

_SIGNAL_FIRST = "OTEL_EXPORTER_OTLP_TRACES_{}", "OTEL_EXPORTER_OTLP_{}"
"""A variable for traces alone outranks the one for all signals."""


class CannotTrace(ValueError):
    """The variables ask for traces in a way that we do not have; says which and what is right."""


def open_tracer(env: Mapping[str, str], replica_id: str) -> Tracer:
    """A tracer that exports, or one that records nothing. Raises `CannotTrace`.

    OpenTelemetry reads the rest of its variables from the process's own environment.
    """
    if not is_asked_for(env):
        return Tracer()
    try:
        # A good part of a replica's start-up time and memory, which none pays without traces.
        from gateway.telemetry.export import ExportingTracer

        import_module("opentelemetry.instrumentation.httpx")  # judges variables when loaded
        return ExportingTracer(gen_ai(env), replica_id)
    except ValueError as error:  # what the SDK says of its own variables
        raise CannotTrace(f"OpenTelemetry refuses its OTEL_ variables: {error}") from error


def is_asked_for(env: Mapping[str, str]) -> bool:
    """Whether the variables name a collector and do not say otherwise. Raises `CannotTrace`."""
    name, endpoint = _chosen(env, "ENDPOINT")
    exporter = _value(env, "OTEL_TRACES_EXPORTER")
    if not endpoint or exporter == "none" or _value(env, "OTEL_SDK_DISABLED").lower() == "true":
        return False
    if exporter not in ("", "otlp"):
        raise CannotTrace(f"OTEL_TRACES_EXPORTER is {exporter!r}; here it is otlp or none")
    protocol_name, protocol = _chosen(env, "PROTOCOL")
    if protocol not in ("", "http/protobuf"):
        raise CannotTrace(
            f"{protocol_name} is {protocol!r}; only http/protobuf is spoken here, which collectors "
            "take on port 4318"
        )
    if not _is_url(endpoint):  # it is not repeated in the message, for it may hold a password
        raise CannotTrace(f"{name} is not a URL such as http://127.0.0.1:4318")
    return True


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of brackets, or of a port that is none
        return False


def _chosen(env: Mapping[str, str], what: str) -> tuple[str, str]:
    """The variable that decides, and its value; "" when none does."""
    for pattern in _SIGNAL_FIRST:
        name = pattern.format(what)
        if value := _value(env, name):
            return name, value
    return "", ""


def _value(env: Mapping[str, str], name: str) -> str:
    return env.get(name, "").strip()
