"""A client's own trace is passed on when it is well formed."""

from __future__ import annotations

import pytest

from gateway.api.request import headers_of
from gateway.telemetry.tracing import UNTRACED, received

TRACE, SPAN = "a1" * 16, "b2" * 8
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_trace_is_passed_on() -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=1,other=2", "baggage": "secret=1"}
    trace = received(headers)
    assert trace.id == TRACE
    assert trace.headers == {"traceparent": PARENT, "tracestate": "vendor=1,other=2"}
    assert not trace.is_recorded


def test_without_one_there_is_none() -> None:
    assert received({"tracestate": "v=1"}) is UNTRACED
    assert (UNTRACED.id, UNTRACED.headers) == (None, {})


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "junk",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
    ],
)
def test_a_malformed_trace_is_not(parent: str) -> None:
    assert received({"traceparent": parent, "tracestate": "v=1"}) is UNTRACED


@pytest.mark.parametrize("state", ["", "é=1", "a=1\r\nx: y", "a" * 513])
def test_a_malformed_trace_state_is_left_out_of_a_good_trace(state: str) -> None:
    assert received({"traceparent": PARENT, "tracestate": state}).headers == {"traceparent": PARENT}


def test_a_trace_state_in_several_lines_is_one() -> None:
    lines = [(b"traceparent", PARENT.encode()), (b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    assert received(headers_of({"headers": lines})).headers["tracestate"] == "a=1, b=2"
