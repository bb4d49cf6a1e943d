"""What an upstream may send before it says anything: bounded, whatever it is made of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.outcome import Outcome
from gateway.core.route import Route
from gateway.dispatch.kinds import Kind
from gateway.dispatch.stream import MAX_BYTES_BEFORE_OUTPUT
from tests.unit.dispatch.upstream_doubles import (
    ROLE,
    USAGE,
    ScriptedTransport,
    delta,
    make_chat,
    relay,
    sse,
)

ASKS_FOR_USAGE = make_chat(stream=True, stream_options={"include_usage": True})
KIB_64 = 64 * 1024


def filled(event: bytes) -> bytes:
    """The event as often as fits into 64 KiB."""
    return event * (KIB_64 // len(event))


@pytest.mark.parametrize(
    "events",
    [
        filled(sse(ROLE, done=False)),
        filled(sse({**ROLE, "pad": "x" * 20_000}, done=False)),
        filled(sse({"choices": []}, done=False)),
        filled(sse(USAGE, done=False)),
        filled(b": ping\n\n"),
        b":" + b"x" * KIB_64 + b"\n\n",
        filled(b"data: {broken\n\n"),
        filled(b"data\n\n"),
        filled(b"event: ping\n\n"),
        filled(b"\r\n" * 300 + b": ping\r\n\r\n"),
        sse(delta(finish="length"), done=False) + filled(sse(USAGE, done=False)),
    ],
    ids=[
        "role",
        "large role",
        "no choice",
        "usage",
        "comment",
        "large comment",
        "malformed",
        "no data",
        "no data, named",
        "blank lines",
        "after a finish",
    ],
)
async def test_an_upstream_that_sends_much_and_says_nothing_is_broken(
    route: Route, events: bytes
) -> None:
    transport = ScriptedTransport(*[events] * 1000)

    _, frames, failure = await relay(transport, route, ASKS_FOR_USAGE)

    assert failure is not None
    assert (failure.kind, failure.error_type) == (Kind.BROKEN, "too_much_before_output")
    assert failure.outcome is Outcome.FAILURE
    assert sum(len(frame.data) for frame in frames) <= MAX_BYTES_BEFORE_OUTPUT
    assert transport.body.closed
    assert not transport.body.exhausted


async def test_all_of_it_in_one_read_is_bounded_too(route: Route) -> None:
    transport = ScriptedTransport(filled(sse(ROLE, done=False)) * 1000)

    _, frames, failure = await relay(transport, route)

    assert failure is not None
    assert failure.error_type == "too_much_before_output"
    assert frames == []


async def test_up_to_the_bound_an_upstream_may_take_its_time(route: Route) -> None:
    pings = filled(b": ping\n\n")
    assert len(pings) == KIB_64
    last = sse(delta("x", finish="stop"))

    failure = (await relay(ScriptedTransport(*[pings] * 16, last), route))[2]
    above = (await relay(ScriptedTransport(*[pings] * 16, b":\n\n", last), route))[2]

    assert failure is None
    assert above is not None


async def test_a_first_output_may_be_larger_than_the_bound(route: Route) -> None:
    image: Any = delta("x" * 2 * MAX_BYTES_BEFORE_OUTPUT, finish="stop")
    wire = sse(ROLE, image)
    parts = [wire[i : i + KIB_64] for i in range(0, len(wire), KIB_64)]

    _, frames, failure = await relay(ScriptedTransport(*parts), route)

    assert failure is None
    assert sum(len(frame.data) for frame in frames) > 2 * MAX_BYTES_BEFORE_OUTPUT


async def test_after_the_first_output_nothing_is_counted(route: Route) -> None:
    roles = [filled(sse(ROLE, done=False))] * 40
    transport = ScriptedTransport(
        sse(delta("x"), done=False), *roles, filled(b": ping\n\n") * 40, sse(delta(finish="stop"))
    )

    assert (await relay(transport, route))[2] is None


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00"])
async def test_a_lone_surrogate_escape_is_relayed_as_it_is_written(route: Route, half: str) -> None:
    said = [json.dumps(delta("HALF", finish=finish)) for finish in (None, None, "stop")]
    wires = [sse(text.replace("HALF", half), done=False) for text in said]

    stream, frames, failure = await relay(ScriptedTransport(*wires, sse()), route)

    assert failure is None
    assert stream.malformed == 0
    assert b"".join(f.data for f in frames) == b"".join(wires).replace(b"theirs", b"public")
