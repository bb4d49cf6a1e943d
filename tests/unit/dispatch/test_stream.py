"""Streams over a scripted transport: what is relayed, how an end is judged, what is closed."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from gateway.core.outcome import Outcome
from gateway.core.request import Usage
from gateway.core.route import Route, UpstreamKey
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.kinds import Kind
from gateway.dispatch.send import Dispatcher
from gateway.dispatch.stream import Frame
from gateway.telemetry.tracing import Trace
from tests.unit.dispatch.upstream_doubles import (
    HELLO,
    ROLE,
    STREAM,
    USAGE,
    ScriptedTransport,
    delta,
    make_chat,
    relay,
    sse,
)


def chunks(frames: list[Frame]) -> list[Any]:
    assert all(f.data.startswith(b"data: ") and f.data.endswith(b"\n\n") for f in frames)
    events = b"".join(frame.data for frame in frames).split(b"\n\n")[:-1]
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def texts(frames: list[Frame]) -> str:
    contents = [choice["delta"].get("content") for c in chunks(frames) for choice in c["choices"]]
    return "".join(text or "" for text in contents)


async def open_failure(transport: ScriptedTransport, route: Route) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as failed:
        await relay(transport, route)
    assert transport.body.closed
    return failed.value


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
async def test_a_stream_is_relayed_however_it_is_split(route: Route, size: int) -> None:
    wire = sse(*HELLO, USAGE).replace(b"\n\n", b"\r\n\r\n")
    transport = ScriptedTransport(*(wire[i : i + size] for i in range(0, len(wire), size)))

    stream, frames, failure = await relay(transport, route)

    assert failure is None
    assert texts(frames) == "Hello"
    assert [frame.output for frame in frames if "Hel" in texts([frame])] == [True]
    assert stream.usage == Usage(prompt_tokens=9, completion_tokens=2)
    assert stream.finish_reasons == {0: "stop"}
    assert stream.has_output
    assert transport.body.closed


async def test_chunks_carry_the_clients_model(route: Route) -> None:
    unnamed = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}

    _, frames, _ = await relay(ScriptedTransport(sse(*HELLO, unnamed)), route)

    assert [chunk.get("model") for chunk in chunks(frames)] == ["public"] * 4 + [None]


@pytest.mark.parametrize("asked", [True, False])
async def test_the_usage_chunk_goes_to_those_who_asked(route: Route, asked: bool) -> None:
    chat = make_chat(stream=True, stream_options={"include_usage": asked})

    _, frames, _ = await relay(ScriptedTransport(sse(*HELLO, USAGE)), route, chat)

    assert (chunks(frames)[-1]["choices"] == []) is asked
    assert len(chunks(frames)) == 4 + asked


async def test_comments_and_done_are_not_relayed_and_bad_events_are_skipped(route: Route) -> None:
    wire = b": ping\n\n" + sse("{broken", ROLE, "[1]", delta("x"), "", delta(finish="stop"))

    stream, frames, failure = await relay(ScriptedTransport(wire), route)

    assert failure is None
    assert stream.malformed == 2
    assert len(chunks(frames)) == 3


async def test_data_on_several_lines_is_relayed_as_such(route: Route) -> None:
    lines = json.dumps(delta("x", finish="stop"), indent=1).replace("\n", "\ndata: ")

    _, frames, failure = await relay(ScriptedTransport(sse(lines)), route)

    assert failure is None
    assert json.loads(frames[0].data.replace(b"data: ", b""))["model"] == "public"
    assert all(line.startswith(b"data: ") for line in frames[0].data.splitlines() if line)


@pytest.mark.parametrize("asks", [[{"delta": {"content": "x"}, "finish_reason": "stop"}]])
async def test_unknown_fields_are_relayed_untouched(route: Route, asks: Any) -> None:
    odd = {"x": [1, {"y": None}], "choices": asks, "model": 7}

    _, frames, failure = await relay(ScriptedTransport(sse(odd)), route)

    assert failure is None
    assert chunks(frames) == [odd]


@pytest.mark.parametrize("done", [True, False])
async def test_with_a_finish_the_end_is_complete_with_or_without_done(
    route: Route, done: bool
) -> None:
    _, frames, failure = await relay(ScriptedTransport(sse(*HELLO, done=done)), route)

    assert failure is None
    assert len(chunks(frames)) == 4


async def test_an_event_without_its_blank_line_is_the_last(route: Route) -> None:
    wire = sse(*HELLO, done=False)[:-2]

    _, frames, failure = await relay(ScriptedTransport(wire), route)

    assert failure is None
    assert len(chunks(frames)) == 4


async def test_a_cut_after_the_finish_is_an_end(route: Route) -> None:
    transport = ScriptedTransport(sse(*HELLO, done=False), httpx.ReadError("cut"))

    assert (await relay(transport, route))[2] is None


async def test_a_stream_that_goes_on_after_its_finish_is_not_cut_short(route: Route) -> None:
    transport = ScriptedTransport(
        sse(delta("a", finish="stop"), done=False),
        0.01,
        sse(delta("b", index=1), done=False),
        0.01,
        sse(delta(index=1, finish="stop"), USAGE),
    )

    stream, frames, failure = await relay(transport, route)

    assert failure is None
    assert texts(frames) == "ab"
    assert stream.usage is not None


@pytest.mark.parametrize(
    ("steps", "error_type"),
    [
        ((sse(ROLE, delta("x"), done=False),), "stream_cut"),
        ((sse(ROLE, delta("x")),), "done_without_finish"),
        ((sse(delta("x", finish="stop"), delta("y", index=1)),), "done_without_finish"),
        ((sse(delta("x"), done=False), httpx.ReadError("cut")), "ReadError"),
        ((b"<html>" * 9,), "stream_cut"),
        ((sse(),), "done_without_finish"),
        ((), "stream_cut"),
        ((b"data: " + b"x" * (17 << 20),), "event_too_large"),
    ],
    ids=["eof", "done", "other choice", "reset", "html", "only done", "nothing", "too large"],
)
async def test_without_a_finish_the_end_is_a_failure(
    route: Route, steps: Any, error_type: str
) -> None:
    transport = ScriptedTransport(*steps)

    _, _, failure = await relay(transport, route)

    assert failure is not None
    assert (failure.kind, failure.error_type) == (Kind.BROKEN, error_type)
    assert failure.outcome is Outcome.FAILURE
    assert transport.body.closed


async def test_frames_before_a_failure_in_the_same_read_are_not_lost(route: Route) -> None:
    wire = sse(delta("x"), {"error": {"message": "m", "code": 529}})

    _, frames, failure = await relay(ScriptedTransport(wire), route)

    assert texts(frames) == "x"
    assert failure is not None
    assert (failure.kind, failure.status) == (Kind.ERROR_FRAME, 529)


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (sse({"error": {"message": "m", "type": "invalid_request_error"}}), 400),
        (b'event: error\ndata: {"message": "m", "code": 503}\n\n', 503),
        (b'event: error\ndata: {"x": 1}\n\n', None),
    ],
)
async def test_an_error_frame_is_classified(route: Route, wire: bytes, status: int | None) -> None:
    _, frames, failure = await relay(ScriptedTransport(wire), route)

    assert frames == []
    assert failure is not None
    assert (failure.kind, failure.status) == (Kind.ERROR_FRAME, status)


async def test_an_answer_without_output_is_empty(route: Route) -> None:
    stream, frames, failure = await relay(
        ScriptedTransport(sse(ROLE, delta(""), delta(finish="stop"), USAGE)), route
    )

    assert failure is not None
    assert (failure.kind, failure.outcome) == (Kind.EMPTY, Outcome.FAILURE)
    assert len(chunks(frames)) == 3
    assert stream.usage is not None


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_some_reasons_explain_an_empty_answer(route: Route, reason: str) -> None:
    wire = sse(ROLE, delta(finish=reason))

    assert (await relay(ScriptedTransport(wire), route))[2] is None


async def test_a_reasoning_only_answer_is_not_empty(route: Route) -> None:
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}

    stream, _, failure = await relay(
        ScriptedTransport(sse(ROLE, thought, delta(finish="stop"))), route
    )

    assert failure is None
    assert stream.has_output


async def test_a_status_is_classified_with_its_body(route: Route) -> None:
    transport = ScriptedTransport(
        b'{"error": {"mess', 0.01, b'age": "slow", "code": "x"}}', status=429
    )

    failed = await open_failure(transport, route)

    assert (failed.kind, failed.status) == (Kind.STATUS, 429)
    assert failed.to_client("m").message == "slow"


async def test_a_large_or_broken_error_body_is_used_as_far_as_it_came(route: Route) -> None:
    large = ScriptedTransport(*[b"x" * 65_536] * 3, status=500)
    cut = ScriptedTransport(b"no slots", httpx.ReadError("cut"), status=503)

    assert (await open_failure(large, route)).status == 500
    assert not large.body.exhausted
    assert (await open_failure(cut, route)).to_client("m").message == "no slots"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"error": {"message": "m", "code": 429}}', Kind.ERROR_FRAME, 429),
        (b'{"choices": [{"message": {"content": "x"}}]}', Kind.BROKEN, None),
        (b"{", Kind.BROKEN, None),
    ],
)
async def test_json_in_answer_to_a_stream_request_is_a_failure(
    route: Route, body: bytes, kind: Kind, status: int | None
) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}

    failed = await open_failure(ScriptedTransport(body, headers=headers), route)

    assert (failed.kind, failed.status) == (kind, status)


async def test_the_request_is_built_for_the_route(route: Route) -> None:
    transport = ScriptedTransport(sse(*HELLO))
    dispatcher = Dispatcher({"http1": transport})

    async with dispatcher.open_stream(
        replace(
            route,
            base_url="http://upstream.invalid",
            api_keys=(UpstreamKey("k1"), UpstreamKey("k2")),
        ),
        STREAM,
        request_id="r1",
        trace=Trace("1", {"traceparent": "00-1"}),
    ) as stream:
        async for _ in stream:
            pass

    request = transport.requests[0]
    assert str(request.url) == "http://upstream.invalid/v1/chat/completions"
    assert dict(request.headers) == {
        "host": "upstream.invalid",
        "content-type": "application/json",
        "content-length": str(len(request.read())),
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "concord/0.1.0",
        "x-request-id": "r1",
        "traceparent": "00-1",
        "authorization": "Bearer k1",
    }
    assert json.loads(request.read())["model"] == "theirs"
    assert request.extensions["timeout"] == {
        "connect": 5.0,
        "pool": 5.0,
        "read": None,
        "write": None,
    }
