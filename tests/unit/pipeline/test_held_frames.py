"""Nothing reaches the client before the first real output, unless silence has to be broken."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.fakes.builders import route
from tests.fakes.calls import Call
from tests.fakes.holds import Hold
from tests.fakes.rig import ADMIN, Rig
from tests.fakes.upstreams import (
    DONE,
    ROLE,
    STOP,
    Answer,
    Upstreams,
    delta,
    empty_stream,
    status,
    stream,
    whole,
)

KEEP_ALIVE = b": keep-alive\n\n"


def is_committed(call: Call) -> bool:
    return KEEP_ALIVE in call.body


async def test_frames_before_the_first_output_are_held_and_come_before_it() -> None:
    # Given an engine that announces its role and then thinks
    hold = Hold()
    rig = Rig(Upstreams(a=Answer([ROLE, hold, delta("x"), STOP, DONE])), route("a"), route("b"))
    call = rig.call(stream=True)
    await hold.reached.wait()
    # Then the client has seen nothing, not even a status
    assert not call.started
    # When the token comes
    hold.go()
    await call.finished()
    # Then the role comes before it
    assert call.body == ROLE + delta("x") + STOP + DONE
    await rig.settled()
    rig.assert_all_ended_once()


async def test_each_frame_after_the_first_output_is_passed_on_at_once() -> None:
    hold = Hold()
    rig = Rig(Upstreams(a=Answer([ROLE, delta("x"), hold, STOP, DONE])), route("a"))
    call = rig.call(stream=True)
    await hold.reached.wait()
    assert call.body == ROLE + delta("x")
    hold.go()
    await call.finished()


async def test_silence_is_broken_by_comments_and_failover_stays_possible() -> None:
    # Given a silent first endpoint and a short keep-alive
    hold = Hold()
    silent = Answer([ROLE, hold], status=200)
    rig = Rig(Upstreams(a=silent, b=stream("x")), route("a"), route("b"), sse_keepalive_s=0.02)
    call = rig.call(stream=True)
    # When the comment has committed the status
    await call.until(is_committed)
    assert call.status == 200
    assert call.headers["content-type"].startswith("text/event-stream")
    # And the endpoint then breaks off
    hold.go()
    await call.finished()
    # Then the other answers, and of the first nothing is seen
    assert call.body.replace(KEEP_ALIVE, b"") == ROLE + delta("x") + STOP + DONE
    assert rig.upstreams.asked == ["a", "b"]
    await rig.settled()
    rig.assert_all_ended_once()


async def test_after_a_comment_a_failure_is_an_error_event() -> None:
    hold = Hold()
    failing = Answer(before=[hold], steps=status(503).steps, status=503)
    rig = Rig(Upstreams(a=failing), route("a"), sse_keepalive_s=0.02)
    call = rig.call(stream=True)
    await call.until(is_committed)
    hold.go()
    await call.finished()
    assert call.status == 200
    last = call.body.rstrip().rpartition(b"data: ")[2]
    assert json.loads(last)["error"]["message"]
    assert DONE not in call.body
    assert call.is_complete


async def test_after_a_comment_frames_of_the_last_possible_endpoint_are_not_held() -> None:
    # Given the only route, which announces its role after a comment was sent
    hold, thinking = Hold(), Hold()
    answer = Answer([hold, ROLE, thinking, delta("x"), STOP, DONE])
    rig = Rig(Upstreams(a=answer), route("a"), sse_keepalive_s=0.02)
    call = rig.call(stream=True)
    await call.until(is_committed)
    # When the role comes, there is nothing to hold it for
    hold.go()
    await call.until(lambda seen: ROLE in seen.body)
    assert not rig.store.firsts
    thinking.go()
    await call.finished()
    assert call.body.endswith(delta("x") + STOP + DONE)


async def test_after_a_comment_frames_are_still_held_while_another_endpoint_could_take_over() -> (
    None
):
    # Given an endpoint that announces its role after a comment was sent, and then breaks off
    hold, thinking = Hold(), Hold()
    first = Answer([hold, delta("", role="first"), thinking])
    rig = Rig(Upstreams(a=first, b=stream("x")), route("a"), route("b"), sse_keepalive_s=0.02)
    call = rig.call(stream=True)
    await call.until(is_committed)
    hold.go()
    await thinking.reached.wait()
    thinking.go()
    await call.finished()
    # Then of its role nothing is seen
    assert call.body.replace(KEEP_ALIVE, b"") == ROLE + delta("x") + STOP + DONE


async def test_comments_stop_with_the_answer_and_never_follow_it() -> None:
    hold = Hold()
    rig = Rig(
        Upstreams(a=Answer([ROLE, delta("x"), hold, STOP, DONE])),
        route("a"),
        sse_keepalive_s=0.02,
    )
    call = rig.call(stream=True)
    await call.until(is_committed)
    hold.go()
    await call.finished()
    assert call.body.endswith(STOP + DONE)


async def test_a_whole_answer_gets_no_comments() -> None:
    hold = Hold()
    slow = Answer([hold, *whole("x").steps], headers={"content-type": "application/json"})
    rig = Rig(Upstreams(a=slow), route("a"), sse_keepalive_s=0.01)
    call = rig.call()
    await hold.reached.wait()
    await asyncio.sleep(0.05)
    assert not call.started
    hold.go()
    await call.finished()
    assert json.loads(call.body)["choices"][0]["message"]["content"] == "x"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_empty_answer_is_failed_over(streamed: bool) -> None:
    empty, good = (empty_stream(), stream("x")) if streamed else (whole(None), whole("x"))
    rig = Rig(Upstreams(a=empty, b=good), route("a"), route("b"))
    call = await rig.ask(stream=streamed)
    assert b'"x"' in call.body
    assert call.body.count(b'"role"') == 1
    assert [outcome for _, outcome, _ in rig.store.outcomes] == ["failure", "success"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("rest", ["none", "failing", "closed", "pinned"])
async def test_an_empty_answer_is_passed_on_when_no_route_is_left(
    streamed: bool, rest: str
) -> None:
    # Given an endpoint that says nothing, and no other that can do better
    empty = empty_stream() if streamed else whole(None)
    routes = [route("a")] if rest == "none" else [route("a"), route("b")]
    rig = Rig(Upstreams(a=empty, b=status(500)), *routes)
    if rest == "closed":
        rig.store.closed["b"] = "circuit_open"
    pin = {"authorization": f"Bearer {ADMIN}", "x-route-pin": "a"} if rest == "pinned" else {}
    # When it is asked
    call = await rig.call(stream=streamed, headers=pin).finished()
    await rig.settled()
    # Then its answer is passed on as it came
    assert call.status == 200
    expected = ROLE + STOP + DONE if streamed else b"".join(map(bytes, empty.steps))
    assert call.body == expected
    assert rig.store.outcomes[0][1] == "failure"
    rig.assert_all_ended_once()


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_an_empty_answer_with_a_reason_is_an_answer(reason: str) -> None:
    rig = Rig(
        Upstreams(a=Answer([ROLE, delta(finish=reason), DONE]), b=stream("never")),
        route("a"),
        route("b"),
    )
    call = await rig.ask(stream=True)
    assert call.body == ROLE + delta(finish=reason) + DONE
    assert rig.upstreams.asked == ["a"]
    assert rig.store.outcomes == [("a", "success", 0)]
