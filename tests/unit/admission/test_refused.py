"""What is said when no endpoint may be used."""

from __future__ import annotations

import json

import pytest

from gateway.admission.admit import Refused
from gateway.api.responses import error_body, error_headers


def test_the_error_counts_endpoints_by_reason() -> None:
    reasons = {"a": "probe_in_flight", "b": "circuit_open", "c": "circuit_open", "d": "modality"}
    error = Refused(reasons, 1500).error("asked-for")
    assert error.status == 503
    assert json.loads(error_body(error))["error"] == {
        "message": "No endpoint of model 'asked-for' can take the request now "
        "(2 circuit_open, 1 modality, 1 probe_in_flight).",
        "type": "server_error",
        "param": None,
        "code": "no_healthy_upstream",
    }


def test_the_error_names_no_endpoint() -> None:
    error = Refused({"secret-host-8000": "circuit_open"}, 0).error("m")
    assert b"secret-host" not in error_body(error)


@pytest.mark.parametrize(
    ("wait_ms", "seconds"),
    [(1, "1"), (999, "1"), (1000, "1"), (1001, "2"), (30_000, "30"), (29_001, "30")],
)
def test_retry_after_is_in_whole_seconds_rounded_up(wait_ms: int, seconds: str) -> None:
    headers = dict(error_headers(Refused({}, wait_ms).error("m")))
    assert headers[b"retry-after"] == seconds.encode()
    assert b"x-should-retry" not in headers


def test_where_waiting_cannot_help_there_is_no_retry_after() -> None:
    assert b"retry-after" not in dict(error_headers(Refused({}, 0).error("m")))
