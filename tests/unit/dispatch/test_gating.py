"""Gates in front of what is sent: when they are entered and left, and what a wait does not cost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import httpx
import pytest
from msgspec.structs import replace

from gateway.core.route import Route, UpstreamKey
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.gating import UNBOUND, Waits
from gateway.dispatch.kinds import Kind
from gateway.dispatch.send import Dispatcher
from tests.fakes.builders import chat
from tests.fakes.gates import ScriptedGates
from tests.fakes.holds import Hold
from tests.fakes.upstreams import (
    DONE,
    ROLE,
    STOP,
    Answer,
    Upstreams,
    delta,
    empty_stream,
    event,
    status,
    stream,
    unreachable,
    whole,
)

TOO_MANY = event({"error": {"message": "slow down", "code": 429}})


@pytest.fixture
def route(route: Route) -> Route:
    return replace(route, base_url="http://a.invalid/v1")


async def send(
    route: Route,
    answer: Answer,
    gates: ScriptedGates,
    *,
    streamed: bool = True,
    waits: Waits = UNBOUND,
) -> None:
    dispatcher = Dispatcher({"http1": Upstreams(a=answer)}, gates=gates)
    if not streamed:
        await dispatcher.complete(route, chat(), request_id="r", waits=waits)
        return
    opened = dispatcher.open_stream(route, chat(stream=True), request_id="r", waits=waits)
    async with opened as frames:
        async for _ in frames:
            pass


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (stream("x"), 200),
        (status(429), 429),
        (status(503), 503),
        (Answer([ROLE, TOO_MANY]), 429),
        (Answer([ROLE, delta("x")]), 0),
        (empty_stream(), 0),
        (unreachable(), 0),
    ],
    ids=["whole", "429", "503", "429 in the stream", "cut", "empty", "unreachable"],
)
async def test_a_gate_is_left_once_with_what_the_upstream_has_answered(
    route: Route, answer: Answer, left: int
) -> None:
    gates = ScriptedGates()
    if left == 200:
        await send(route, answer, gates)
    else:
        with pytest.raises(UpstreamFailure):
            await send(route, answer, gates)
    assert gates.left == [("a", left)]


@pytest.mark.parametrize("answer", [whole("x"), status(500)], ids=["200", "500"])
async def test_a_whole_answer_leaves_it_likewise(route: Route, answer: Answer) -> None:
    gates = ScriptedGates()
    with contextlib.suppress(UpstreamFailure):
        await send(route, answer, gates, streamed=False)
    assert gates.left == [("a", answer.status)]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_caller_that_leaves_takes_its_place_along(route: Route, streamed: bool) -> None:
    gates, hold = ScriptedGates(), Hold()
    task = asyncio.create_task(send(route, Answer([ROLE, hold]), gates, streamed=streamed))
    await hold.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gates.left == [("a", None)]


async def test_a_place_is_given_back_though_the_caller_leaves_while_its_upstream_is_closed(
    route: Route,
) -> None:
    gates, silent, closing = ScriptedGates(), Hold(), Hold()

    class SlowToClose(Upstreams):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            response.stream.aclose = closing.wait  # type: ignore[method-assign,union-attr]
            return response

    dispatcher = Dispatcher({"http1": SlowToClose(a=Answer([ROLE, silent]))}, gates=gates)

    async def ask() -> None:
        async with dispatcher.open_stream(route, chat(stream=True), request_id="r") as frames:
            async for _ in frames:
                pass

    task = asyncio.create_task(ask())
    for reached in (silent, closing):
        await reached.reached.wait()
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gates.left == [("a", None)]


async def test_the_engine_is_free_for_the_next_at_the_first_output(route: Route) -> None:
    gates, hold = ScriptedGates(), Hold()
    answer = Answer([ROLE, delta("x"), hold, delta("y"), STOP, DONE])
    task = asyncio.create_task(send(route, answer, gates))
    await hold.reached.wait()
    assert (gates.firsts, gates.left) == (["a"], [])
    hold.go()
    await task
    assert gates.firsts == ["a"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_time_in_line_is_none_of_the_upstreams(
    route: Route, with_timeouts: Callable[..., Route], streamed: bool
) -> None:
    slow = replace(route, timeouts=with_timeouts(total=0.1, first_byte=0.1).timeouts)
    hold = Hold()
    gates = ScriptedGates(a=[hold])
    answer = stream("x") if streamed else whole("x")
    task = asyncio.create_task(send(slow, answer, gates, streamed=streamed))
    await hold.reached.wait()
    await asyncio.sleep(0.2)
    hold.go()
    await task
    assert gates.left == [("a", 200)]


async def test_the_earlier_of_two_bounds_on_the_first_output_says_what_it_means(
    route: Route, with_timeouts: Callable[..., Route]
) -> None:
    silent = Answer([ROLE, None])
    for first_byte, engine_wait_s, kind in ((9, 0.05, Kind.ENGINE_WAIT), (0.05, 9, Kind.TIMEOUT)):
        bounded = replace(route, timeouts=with_timeouts(first_byte=first_byte).timeouts)
        waits = Waits(engine_wait_s=engine_wait_s)
        with pytest.raises(UpstreamFailure) as failed:
            await send(bounded, silent, ScriptedGates(), waits=waits)
        assert failed.value.kind is kind


async def test_with_one_key_a_wait_in_vain_is_the_end_of_the_attempt(route: Route) -> None:
    one = replace(route, api_keys=(UpstreamKey("k"),))
    gates = ScriptedGates(a=[Kind.SATURATED])
    with pytest.raises(UpstreamFailure) as failed:
        await send(one, stream("x"), gates)
    assert (failed.value.kind, failed.value.was_sent) == (Kind.SATURATED, False)
    assert gates.left == []


@pytest.mark.parametrize("cancelled_after_s", [0.04, 0.06], ids=["before", "after"])
@pytest.mark.parametrize("answer", [Answer([ROLE, None]), Answer(before=[None])])
async def test_a_client_that_leaves_as_its_wait_ends_has_left(
    route: Route, cancelled_after_s: float, answer: Answer
) -> None:
    loop, gates = asyncio.get_running_loop(), ScriptedGates()
    task = asyncio.create_task(send(route, answer, gates, waits=Waits(engine_wait_s=0.05)))
    loop.call_later(cancelled_after_s, task.cancel)
    # A loop held up beyond both timers runs them one after the other, in the order of their times.
    loop.call_later(0.02, time.sleep, 0.1)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gates.left == [("a", None)]
