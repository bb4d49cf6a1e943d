"""The trace of a request: its tree, and what of it goes upstream and into the log."""

from __future__ import annotations

import json
import logging

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from gateway.core.overrides import Overrides
from gateway.core.route import UpstreamKey
from gateway.dispatch.gating import Gates
from gateway.errors import StateUnavailable
from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL
from gateway.telemetry.logs import JsonFormatter
from gateway.telemetry.tracing import Tracer
from tests.fakes.builders import config, key, model, route
from tests.fakes.holds import Hold
from tests.fakes.recorder import PATH, Recorder, events
from tests.fakes.rig import Rig
from tests.fakes.upstreams import ROLE, Answer, Upstreams, delta, status, stream, whole
from tests.unit.gates.replica import GateReplica

REQUEST = f"POST {PATH}"
TRACE_ID, PARENT_ID = "c3" * 16, "d4" * 8


def traceparents(upstreams: Upstreams) -> list[list[str]]:
    return [headers.get_list("traceparent") for headers in upstreams.headers]


def as_parent(span: ReadableSpan) -> str:
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
async def test_a_request_that_failed_over_tells_its_whole_way(streamed: bool) -> None:
    # Given a circuit that is open, and an upstream that fails
    recorder = Recorder()
    good = stream("x") if streamed else whole("x")
    upstreams = Upstreams(b=status(503), c=good)
    rig = Rig(upstreams, route("a"), route("b"), route("c"), tracer=recorder)
    rig.store.closed["a"] = "circuit_open"

    # When a request is served by a third
    await rig.ask(stream=streamed)

    # Then its tree is all there
    assert recorder.outline() == [
        REQUEST,
        f"{REQUEST} > admit",
        f"{REQUEST} > attempt",
        f"{REQUEST} > attempt > POST",
        f"{REQUEST} > settle",
        f"{REQUEST} > admit",
        f"{REQUEST} > attempt",
        f"{REQUEST} > attempt > POST",
        f"{REQUEST} > settle",
    ]
    # And says who was considered, who dropped out and why, and how each attempt ended
    first, second = recorder.spans("admit")
    assert events(first) == [
        ("candidate_dropped", {"concord.endpoint": "m:a", "concord.reason": "circuit_open"})
    ]
    assert [name for name, _ in events(second)] == ["candidate_dropped"] * 2
    said = [dict(span.attributes or {}) for span in (first, second)]
    assert [one["concord.endpoint"] for one in said] == ["m:b", "m:c"]
    assert [one["concord.order"] for one in said] == ["draw", "declared"]
    failed, served = recorder.spans("attempt")
    assert dict(failed.attributes or {})["error.type"] == "http_503"
    assert failed.status.status_code is StatusCode.ERROR
    assert served.status.status_code is StatusCode.UNSET
    assert [event.name for event in served.events] == (["first_output"] if streamed else [])
    outcomes = [dict(span.attributes or {})["concord.outcome"] for span in recorder.spans("settle")]
    assert outcomes == ["failure", "success"]
    request = recorder.attributes(REQUEST)
    assert request["concord.attempts"] == 2
    assert request["concord.endpoint"] == "m:c"
    assert request["concord.config_digest"] == "digest"
    assert request["http.response.status_code"] == 200


async def test_a_line_that_an_attempt_stood_in_is_part_of_it(keys: Keys) -> None:
    recorder = Recorder()
    async with GateReplica(EMBEDDED_URL, keys) as replica:
        gates = Gates(replica.limiter, replica.hold)
        rig = Rig(Upstreams(a=whole("x")), route("a"), tracer=recorder, gates=gates)
        await rig.ask()
    assert recorder.outline()[:4] == [
        REQUEST,
        f"{REQUEST} > admit",
        f"{REQUEST} > attempt",
        f"{REQUEST} > attempt > gate",
    ]
    [gate] = recorder.spans("gate")
    assert dict(gate.attributes or {}) == {"concord.endpoint": "m:a", "concord.queue_ms": 0.0}


async def test_an_upstream_continues_from_the_call_that_reached_it() -> None:
    recorder = Recorder()
    upstreams = Upstreams(a=status(503), b=stream("x"))
    rig = Rig(upstreams, route("a"), route("b"), tracer=recorder)

    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "tracestate": "v=1", "baggage": "b"}
    await rig.call(stream=True, headers=headers).finished()
    await rig.settled()

    calls = recorder.spans("POST")
    assert traceparents(upstreams) == [[as_parent(call)] for call in calls]
    assert all(as_parent(call).split("-")[1] == TRACE_ID for call in calls)
    assert [headers.get("tracestate") for headers in upstreams.headers] == ["v=1", "v=1"]
    assert not any("baggage" in headers for headers in upstreams.headers)


async def test_a_request_that_is_not_sampled_costs_a_header(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    recorder = Recorder(ALWAYS_OFF)
    upstreams = Upstreams(a=status(503), b=stream("x"))
    rig = Rig(upstreams, route("a"), route("b"), tracer=recorder)

    await rig.ask(stream=True)

    assert recorder.spans() == []
    [[first], [second]] = traceparents(upstreams)
    assert first == second
    assert int(first.split("-")[3], 16) & 1 == 0
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    [line] = [line for line in lines if line["msg"] == "request"]
    assert line["trace_id"] == first.split("-")[1]


async def test_the_log_names_the_trace_that_was_recorded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    recorder = Recorder()
    rig = Rig(Upstreams(a=stream("x")), route("a"), tracer=recorder)

    await rig.ask(stream=True)

    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    [line] = [line for line in lines if line["msg"] == "request"]
    assert line["trace_id"] == f"{recorder.only(REQUEST).context.trace_id:032x}"


async def test_where_no_traces_are_exported_none_goes_upstream() -> None:
    upstreams = Upstreams(a=stream("x"))
    rig = Rig(upstreams, route("a"), tracer=Tracer())

    await rig.ask(stream=True)

    assert traceparents(upstreams) == [[]]


async def test_a_client_that_leaves_is_seen_in_every_part() -> None:
    # Given a stream that waits in its middle
    recorder, hold = Recorder(), Hold()
    rig = Rig(Upstreams(a=Answer([ROLE, delta("x"), hold])), route("a"), tracer=recorder)
    call = rig.call(stream=True)
    await hold.reached.wait()

    # When its client leaves
    call.leave()
    await call.finished()
    await rig.settled()

    assert recorder.attributes("attempt")["error.type"] == "cancelled"
    assert recorder.attributes("settle")["concord.outcome"] == "neutral"
    assert recorder.attributes(REQUEST)["concord.client_cancelled"] is True
    assert all(span.status.status_code is StatusCode.UNSET for span in recorder.spans())


async def test_a_stream_that_breaks_after_its_status_is_an_error() -> None:
    recorder = Recorder()
    broken = Answer([ROLE, delta("x"), ConnectionResetError()])
    rig = Rig(Upstreams(a=broken), route("a"), tracer=recorder)

    await rig.ask(stream=True)

    assert recorder.attributes(REQUEST)["http.response.status_code"] == 200
    assert recorder.only(REQUEST).status.status_code is StatusCode.ERROR


async def test_a_refusal_says_why_nobody_could_serve_it() -> None:
    recorder = Recorder()
    rig = Rig(Upstreams(), route("a"), route("b", weight=0.0), tracer=recorder)
    rig.store.closed["a"] = "circuit_open"

    await rig.ask()

    assert recorder.outline() == [REQUEST, f"{REQUEST} > admit"]
    reasons = {event["concord.reason"] for _, event in events(recorder.only("admit"))}
    assert reasons == {"circuit_open", "weight_zero"}
    assert recorder.attributes(REQUEST)["error.type"] == "no_healthy_upstream"
    assert recorder.only(REQUEST).status.status_code is StatusCode.ERROR


async def test_a_decision_that_has_to_be_made_again_is_seen_twice() -> None:
    recorder = Recorder()
    rig = Rig(Upstreams(a=stream("x")), route("a"), tracer=recorder)
    rig.store.in_force = replace(Overrides(), epoch=7)

    await rig.ask(stream=True)

    stale, decided = (dict(span.attributes or {}) for span in recorder.spans("admit"))
    assert stale["concord.stale"] is True
    assert (stale["concord.attempt"], decided["concord.attempt"]) == (1, 1)
    assert decided["concord.endpoint"] == "m:a"


async def test_a_store_that_is_away_is_seen_where_it_was_asked() -> None:
    recorder = Recorder()
    rig = Rig(Upstreams(), route("a"), tracer=recorder)
    rig.store.raising["admit"] = [StateUnavailable()]

    await rig.ask()

    assert recorder.attributes("admit")["error.type"] == "state_unavailable"
    assert recorder.attributes(REQUEST)["error.type"] == "state_unavailable"


async def test_a_request_that_never_reached_the_pipeline_has_a_span() -> None:
    recorder = Recorder()
    rig = Rig(Upstreams(), route("a"), tracer=recorder)

    await rig.ask(model="unknown")

    attributes = recorder.attributes()
    assert attributes["error.type"] == "model_not_found"
    assert attributes["http.response.status_code"] == 404
    assert "unknown" not in json.dumps(attributes)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_no_prompt_no_answer_and_no_credential_is_in_any_span(streamed: bool) -> None:
    # Given canaries in the prompt, the answer, the keys, the headers and an upstream's error
    recorder = Recorder()
    settings = config(
        model(*(route(at, api_keys=(UpstreamKey("canary-upstream"),)) for at in "ab")),
        keys=[key("canary-caller", "alice")],
    )
    good = stream("canary-answer") if streamed else whole("canary-answer")
    rig = Rig(Upstreams(a=status(500, "canary-upstream"), b=good), config=settings, tracer=recorder)

    # When a request fails over
    headers = {"authorization": "Bearer canary-caller", "cookie": "canary", "user-agent": "canary"}
    call = await rig.call(content="canary-prompt", stream=streamed, headers=headers).finished()
    await rig.settled()

    assert call.status == 200
    assert len(recorder.spans()) == 9
    assert not [span for span in recorder.spans() if "canary" in span.to_json()]
