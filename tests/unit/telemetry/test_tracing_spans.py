"""What is recorded of a request, and what travels upstream when nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBasedTraceIdRatio
from opentelemetry.trace import SpanKind, StatusCode

from gateway.core.outcome import Outcome
from gateway.core.reasons import Reason
from gateway.core.request import Usage
from gateway.dispatch.failures import broken
from gateway.errors import StateUnavailable
from gateway.telemetry.access import AttemptRecord, RequestRecord
from gateway.telemetry.names import LATEST, LEGACY, GenAI
from gateway.telemetry.tracing import UNTRACED, Trace, Tracer
from tests.fakes.builders import route
from tests.fakes.recorder import PATH, Recorder, events

TRACE_ID, PARENT_ID = "c3" * 16, "d4" * 8
SAMPLED = f"00-{TRACE_ID}-{PARENT_ID}-01"
UNSAMPLED = f"00-{TRACE_ID}-{PARENT_ID}-00"


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def record() -> RequestRecord:
    return RequestRecord(request_id="r-1", route=PATH, attempts=[AttemptRecord(endpoint="m:a")])


# Who is recorded.


def test_a_client_s_trace_is_continued(recorder: Recorder, record: RequestRecord) -> None:
    traced = recorder.trace({"traceparent": SAMPLED, "tracestate": "vendor=1", "baggage": "b=1"})
    traced.end(record)

    span = recorder.only()
    assert traced.is_recorded
    assert traced.id == TRACE_ID == f"{span.context.trace_id:032x}"
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT_ID
    assert span.context.trace_state == {"vendor": "1"}
    assert (span.name, span.kind) == (f"POST {PATH}", SpanKind.SERVER)


@pytest.mark.parametrize("parent", [None, "junk", f"ff-{TRACE_ID}-{PARENT_ID}-01"])
def test_without_a_client_s_trace_one_is_begun(
    parent: str | None, recorder: Recorder, record: RequestRecord
) -> None:
    traced = recorder.trace({"traceparent": parent} if parent else {})
    traced.end(record)

    span = recorder.only()
    assert span.parent is None
    assert traced.id == f"{span.context.trace_id:032x}" != TRACE_ID


@pytest.mark.parametrize("state", [{}, {"tracestate": "vendor=1"}])
def test_a_trace_that_the_client_does_not_sample_goes_on_as_it_came(
    state: dict[str, str], recorder: Recorder
) -> None:
    headers = {"traceparent": UNSAMPLED, **state}

    traced = recorder.trace({**headers, "baggage": "b=1"})

    assert (traced.is_recorded, traced.id, traced.headers) == (False, TRACE_ID, headers)


def test_a_request_that_is_not_sampled_still_carries_a_trace_of_ours() -> None:
    traced = Recorder(ALWAYS_OFF).trace()

    assert traced.id is not None
    version, trace_id, span_id, flags = traced.headers["traceparent"].split("-")
    assert (version, trace_id, int(flags, 16) & 1) == ("00", traced.id, 0)
    assert int(span_id, 16) != 0
    assert not traced.is_recorded
    assert set(traced.headers) == {"traceparent"}


def test_a_share_is_sampled_by_the_id_that_the_trace_gets() -> None:
    # So that others who sample the same share take the same traces.
    recorder, half = Recorder(ParentBasedTraceIdRatio(0.5)), 1 << 63
    traces = [recorder.trace() for _ in range(64)]

    assert {traced.is_recorded for traced in traces} == {True, False}
    for traced in traces:
        assert traced.id is not None
        assert traced.is_recorded is (int(traced.id[16:], 16) < half)
    assert len({traced.id for traced in traces}) == 64


@pytest.mark.parametrize("headers", [{}, {"traceparent": "junk"}])
def test_where_no_traces_are_exported_none_is_begun(headers: dict[str, str]) -> None:
    assert Tracer().begin(headers, PATH) is UNTRACED
    assert (UNTRACED.id, UNTRACED.headers) == (None, {})


def test_where_no_traces_are_exported_a_client_s_goes_on_as_it_came() -> None:
    traced = Tracer().begin({"traceparent": SAMPLED, "tracestate": "v=1", "baggage": "b=1"}, PATH)

    assert (traced.is_recorded, traced.id) == (False, TRACE_ID)
    assert traced.headers == {"traceparent": SAMPLED, "tracestate": "v=1"}


# The request.


def test_a_request_says_what_its_line_in_the_log_says(
    recorder: Recorder, record: RequestRecord
) -> None:
    recorder.trace().end(
        replace(
            record,
            caller="alice",
            model="m",
            endpoint="m:a",
            stream=True,
            status=200,
            ttft_ms=12.5,
            overhead_ms=1.5,
            config_digest="d1",
        )
    )

    assert recorder.attributes() == {
        "http.request.method": "POST",
        "http.route": PATH,
        "url.path": PATH,
        "http.response.status_code": 200,
        "concord.request_id": "r-1",
        "concord.caller": "alice",
        "concord.model": "m",
        "concord.endpoint": "m:a",
        "concord.stream": True,
        "concord.attempts": 1,
        "concord.ttft_ms": 12.5,
        "concord.overhead_ms": 1.5,
        "concord.config_digest": "d1",
    }
    assert recorder.only().status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("status", "error_type", "is_error"),
    [
        (200, None, False),
        (200, "upstream_error", True),  # a stream that broke after its status
        (404, "model_not_found", False),  # the client's own fault
        (502, "upstream_error", True),
    ],
)
def test_a_request_failed_when_it_is_our_side_that_failed(
    status: int, error_type: str | None, is_error: bool, recorder: Recorder, record: RequestRecord
) -> None:
    recorder.trace().end(replace(record, status=status, error_type=error_type))

    assert (recorder.only().status.status_code is StatusCode.ERROR) is is_error
    assert recorder.attributes().get("error.type") == error_type


def test_a_client_that_left_is_no_error(recorder: Recorder, record: RequestRecord) -> None:
    recorder.trace().end(replace(record, status=499, client_cancelled=True))

    assert recorder.attributes()["concord.client_cancelled"] is True
    assert recorder.only().status.status_code is StatusCode.UNSET


# Its decisions.


def test_a_decision_says_what_was_considered_dropped_and_drawn(recorder: Recorder) -> None:
    candidates = [("a", 1.0), ("b", 0.5), ("c", 2.0)]
    with recorder.trace().admitting("m", 1, "draw", candidates) as step:
        step.dropped({"a": "circuit_open"}, {"b": Reason.PROBE_IN_FLIGHT})
        step.admitted(route("c"), [0.25, 0.5, 0.75], is_probe=True, pin="made")

    span = recorder.only()
    assert span.name == "admit"
    assert recorder.attributes() == {
        "concord.attempt": 1,
        "concord.order": "draw",
        "concord.candidates": ("a=1", "b=0.5", "c=2"),
        "concord.dropped.count": 2,
        "concord.endpoint": "m:c",
        "concord.draw.numbers": (0.25, 0.5, 0.75),
        "concord.probe": True,
        "concord.pin": "made",
    }
    assert events(span) == [
        ("candidate_dropped", {"concord.endpoint": "m:a", "concord.reason": "circuit_open"}),
        ("candidate_dropped", {"concord.endpoint": "m:b", "concord.reason": "probe_in_flight"}),
    ]


@pytest.mark.parametrize(("count", "told"), [(15, 15), (16, 16), (17, 16)])
def test_a_decision_tells_of_sixteen_dropped_and_counts_them_all(
    count: int, told: int, recorder: Recorder
) -> None:
    with recorder.trace().admitting("m", 1, "draw", [("a", 1.0)]) as step:
        step.dropped({f"l{n}": "circuit_open" for n in range(count)})

    assert recorder.attributes()["concord.dropped.count"] == count
    assert len(recorder.only().events) == told


def test_a_decision_on_outdated_weights_says_so(recorder: Recorder) -> None:
    with recorder.trace().admitting("m", 1, "draw", [("a", 1.0)]) as step:
        step.stale()

    assert recorder.attributes()["concord.stale"] is True


def test_a_decision_that_could_not_be_made_says_why(recorder: Recorder) -> None:
    with pytest.raises(StateUnavailable), recorder.trace().admitting("m", 1, "draw", [("a", 1.0)]):
        raise StateUnavailable

    assert recorder.attributes()["error.type"] == "state_unavailable"
    assert recorder.only().status.status_code is StatusCode.ERROR


# Its attempts.


def test_an_attempt_says_where_it_went_and_what_came(
    recorder: Recorder, record: RequestRecord
) -> None:
    record.attempts.append(AttemptRecord(endpoint="m:b"))
    to = route("b", kind="openrouter[slug]", provider="team-1")
    with recorder.trace().attempting(to, record) as attempt:
        attempt.used(Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=2))

    span = recorder.only()
    assert (span.name, span.kind) == ("attempt", SpanKind.CLIENT)
    assert recorder.attributes() == {
        "concord.attempt": 2,
        "concord.endpoint": "m:b",
        "concord.provider": "team-1",
        "gen_ai.system": "openrouter",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "theirs",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 2,
    }
    assert span.status.status_code is StatusCode.UNSET


def test_an_attempt_bears_the_newer_names_when_they_are_asked_for(record: RequestRecord) -> None:
    recorder = Recorder(ALWAYS_ON, LATEST)
    with recorder.trace().attempting(route(), replace(record, stream=True)):
        pass

    attributes = recorder.attributes()
    assert attributes["gen_ai.provider.name"] == "vllm"
    assert attributes["gen_ai.request.stream"] is True
    assert "gen_ai.system" not in attributes


@pytest.mark.parametrize("gen_ai", [LEGACY, LATEST])
def test_the_first_output_is_timed_from_the_start_of_its_attempt(
    gen_ai: GenAI, record: RequestRecord
) -> None:
    recorder = Recorder(ALWAYS_ON, gen_ai)
    record.started_s -= 10  # earlier attempts took ten seconds
    with recorder.trace().attempting(route(), record) as attempt:
        attempt.first_output()

    span, attributes = recorder.only(), recorder.attributes()
    [event] = span.events
    assert event.name == "first_output"
    assert 0 <= attributes["concord.ttft_ms"] < 10_000
    assert span.start_time is not None
    assert event.timestamp - span.start_time < 10_000_000_000
    newer = attributes.get("gen_ai.response.time_to_first_chunk")
    assert newer == (attributes["concord.ttft_ms"] / 1000 if gen_ai is LATEST else None)


def test_an_attempt_that_was_sent_beside_another_says_so(
    recorder: Recorder, record: RequestRecord
) -> None:
    for hedge in (False, True):
        record.attempts.append(AttemptRecord(endpoint="m:b", hedge=hedge))
        with recorder.trace().attempting(route("b"), record):
            pass

    told = [dict(span.attributes or {}) for span in recorder.spans("attempt")]
    assert [one.get("concord.hedge") for one in told] == [None, True]


def test_a_failed_attempt_says_how_it_failed_and_nothing_more(
    recorder: Recorder, record: RequestRecord
) -> None:
    failure = broken(route(), "answer_too_large")
    with (
        pytest.raises(type(failure)),
        recorder.trace().attempting(route(), record),
    ):
        raise failure

    span = recorder.only()
    assert recorder.attributes()["error.type"] == "answer_too_large"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert not span.events


async def test_an_attempt_that_was_cut_off_is_no_error(
    recorder: Recorder, record: RequestRecord
) -> None:
    async def attempt() -> None:
        with recorder.trace().attempting(route(), record):
            await asyncio.Event().wait()

    task = asyncio.create_task(attempt())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert recorder.attributes()["error.type"] == "cancelled"
    assert recorder.only().status.status_code is StatusCode.UNSET


def test_an_attempt_is_current_while_it_lasts(recorder: Recorder, record: RequestRecord) -> None:
    with recorder.trace().attempting(route(), record):
        inside = trace.get_current_span().get_span_context()

    assert inside.span_id == recorder.only().context.span_id
    assert not trace.get_current_span().get_span_context().is_valid


# What becomes of a claim.


@pytest.mark.parametrize(("turned", "told"), [("opened", "opened"), ("", None)])
def test_a_settlement_says_what_it_did(turned: str, told: str | None, recorder: Recorder) -> None:
    with recorder.trace().settling(route(), Outcome.FAILURE) as step:
        step.turned(turned)

    attributes = recorder.attributes()
    assert recorder.only().name == "settle"
    assert attributes["concord.endpoint"] == "m:a"
    assert attributes["concord.outcome"] == "failure"
    assert attributes.get("concord.circuit") == told


Part = Callable[[Trace, RequestRecord], Any]
PARTS: list[Part] = [
    lambda traced, record: traced.admitting("m", 1, "draw", [("a", 1.0)]),
    lambda traced, record: traced.attempting(route(), record),
    lambda traced, record: traced.settling(route(), Outcome.SUCCESS),
]


@pytest.mark.parametrize("part", PARTS, ids=["admit", "attempt", "settle"])
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
def test_each_part_belongs_to_its_request_even_after_its_end(
    part: Part, is_late: bool, recorder: Recorder, record: RequestRecord
) -> None:
    traced = recorder.trace({"traceparent": SAMPLED})
    if is_late:
        traced.end(record)
    with part(traced, record):
        pass
    if not is_late:
        traced.end(record)

    by_name = {span.name: span for span in recorder.spans()}
    request = by_name.pop(f"POST {PATH}")
    [span] = by_name.values()
    assert span.parent is not None
    assert span.parent.span_id == request.context.span_id
    assert span.context.trace_id == request.context.trace_id


@pytest.mark.parametrize("part", PARTS, ids=["admit", "attempt", "settle"])
def test_the_parts_of_a_request_that_is_not_recorded_are_not_either(
    part: Part, record: RequestRecord
) -> None:
    recorder = Recorder(ALWAYS_OFF)
    traced = recorder.trace()
    with part(traced, record) as step:
        step.dropped({"a": "circuit_open"})
        step.admitted(route(), [0.5], is_probe=False, pin="")
        step.stale()
        step.turned("opened")
    traced.end(record)

    assert recorder.spans() == []
