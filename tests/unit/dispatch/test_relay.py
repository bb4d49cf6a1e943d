"""Relaying runs of events as bytes changes nothing that a client or the gateway can see."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.route import Route
from gateway.protocols.openai_relay import Relay
from tests.unit.dispatch.upstream_doubles import (
    USAGE,
    ScriptedTransport,
    delta,
    make_chat,
    relay,
)

TRICKY = ['"error"', '"usage": {', '"finish_reason":"', "}\n\ndata: {", '"model":"theirs"', "é\\"]
EVENTS = st.one_of(
    st.sampled_from(TRICKY).map(delta),
    st.text(max_size=5).map(delta),
    st.just(delta(finish="stop")),
    st.just({**delta("x"), "usage": None}),
    st.just({**delta("x"), "model": "others"}),
    st.just(USAGE),
    st.just({"model": "theirs", "choices": []}),
    st.just({"error": {"message": "no", "code": 503}}),
    st.sampled_from(["{broken", "[DONE]", "3", ": ping"]),
)


def wire_of(events: list[Any], compact: bool, line_end: bytes) -> bytes:
    separators = (",", ":") if compact else None
    wire = b""
    for event in events:
        text = event if isinstance(event, str) else json.dumps(event, separators=separators)
        prefix = "" if text.startswith(":") else "data: "
        wire += (prefix + text).encode() + line_end * 2
    return wire


async def outcome(wire: bytes, cuts: list[int], route: Route, choices: int) -> dict[str, Any]:
    """All that can be seen of a stream. With two choices asked for, each event is read."""
    bounds = sorted({0, len(wire), *(cut for cut in cuts if 0 < cut < len(wire))})
    pieces = [wire[a:b] for a, b in itertools.pairwise(bounds)]
    chat = make_chat(stream=True, n=choices)
    stream, frames, failure = await relay(ScriptedTransport(*pieces), route, chat)
    events = b"".join(frame.data for frame in frames).split(b"\n\n")
    assert events.pop() == b""
    return {
        "events": [json.loads(event.removeprefix(b"data:")) for event in events],
        "failure": failure and (failure.kind, failure.error_type),
        "usage": stream.usage,
        "finish_reasons": stream.finish_reasons,
        "malformed": stream.malformed,
    }


@given(
    events=st.lists(EVENTS, max_size=12),
    cuts=st.lists(st.integers(0, 1500), max_size=3),
    gaps=st.lists(st.integers(0, 12), max_size=6),
    compact=st.booleans(),
    line_end=st.sampled_from([b"\n", b"\r\n"]),
)
@settings(max_examples=300, deadline=None)
async def test_any_stream_in_any_pieces_comes_out_as_if_each_event_were_read(
    events: list[Any], cuts: list[int], gaps: list[int], compact: bool, line_end: bytes
) -> None:
    route = Route(
        model_id="m",
        location="a",
        provider="p",
        kind="vllm",
        base_url="http://a.invalid",
        upstream_model="theirs",
    )
    events = [delta("first"), *events]
    wire = wire_of(events, compact, line_end)
    # Pieces mostly end where an event does, as those of a paced stream do.
    cuts += [len(wire_of(events[:gap], compact, line_end)) for gap in [1, *gaps]]
    assert await outcome(wire, cuts, route, 1) == await outcome(wire, [], route, 2)


@pytest.mark.parametrize(
    ("events", "plain"),
    [
        (b'data: {"a":1}\n\n', True),
        (b'data: {"a":1}\n\ndata:{"b":"\\"error\\""}\n\n', True),
        (b'data: {"usage":null,"finish_reason": null}\n\n', True),
        (b'data: {"usage": {"prompt_tokens":1}}\n\n', False),
        (b'data: {"finish_reason" : "stop"}\n\n', False),
        (b'data: {"error":"x"}\n\n', False),
        (b'data: {"model":"m","x":{"model": "m"}}\n\n', True),
        (b'data: {"model" :"m"}\n\n', False),
        (b'data: {"model":null}\n\n', False),
        (b"data: [DONE]\n\n", False),
        (b": ping\n\n", False),
        (b'event: error\ndata: {"a":1}\n\n', False),
        (b'data: {"a":\n\n', False),
        (b'data: {"a":1}\ndata: {"b":1}\n\n', False),
        (b'data: {"a":1}\r\n\r\n', False),
        (b"", False),
    ],
)
def test_plain_is_a_run_of_objects_that_say_nothing_special(events: bytes, plain: bool) -> None:
    assert (Relay("m", "m").pass_on(events) == events) is plain


def test_renaming_leaves_content_alone() -> None:
    relay = Relay("the.irs", 'ours\\1"')
    events = b'data: {"model": "the.irs","x":"\\"model\\":\\"the.irs\\""}\n\n'
    renamed = relay.pass_on(events)
    assert renamed is not None
    said = json.loads(renamed.removeprefix(b"data: "))
    assert said == {"model": 'ours\\1"', "x": '"model":"the.irs"'}


@pytest.mark.parametrize("colon", [":", ": "])
def test_the_name_is_changed_however_the_colon_is_spaced(colon: str) -> None:
    events = f'data: {{"model"{colon}"theirs"}}\n\n'.encode()

    assert Relay("theirs", "ours").pass_on(events * 2) == events.replace(b"theirs", b"ours") * 2


def test_an_unheard_of_model_is_read() -> None:
    assert Relay("theirs", "ours").pass_on(b'data: {"model":"theXirs"}\n\n') is None
