"""Whatever becomes of a request, each claim it took ends, and ends once."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from gateway.api.responses import HttpReply
from gateway.core.caller import Caller
from gateway.core.outcome import Outcome
from gateway.errors import StateUnavailable
from gateway.exchange import Exchange
from gateway.telemetry.access import RequestRecord
from tests.fakes.builders import chat, route
from tests.fakes.calls import Call
from tests.fakes.holds import Hold
from tests.fakes.rig import Rig
from tests.fakes.upstreams import DONE, ROLE, STOP, Answer, Upstreams, delta, status, stream, whole

JSON = {"content-type": "application/json"}


async def leave_at(rig: Rig, hold: Hold, call: Call) -> None:
    """Hang up once the hold is reached; let go afterwards whatever still waits there."""
    await hold.reached.wait()
    call.leave()
    await call.finished()
    hold.go()
    await rig.settled()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("script", ["admit", "settle"])
@pytest.mark.parametrize("has_run", [False, True], ids=["not run", "run"])
async def test_a_client_that_leaves_during_a_script_leaves_no_claim(
    script: str, has_run: bool, streamed: bool
) -> None:
    # Given a script that has not run yet, or has run and not answered yet
    rig = Rig(Upstreams(a=status(500), b=status(500)), route("a"), route("b"))
    holds = rig.store.holds if has_run else rig.store.holds_before
    hold = holds[script] = Hold()
    # When the client leaves meanwhile
    call = rig.call(stream=streamed)
    await leave_at(rig, hold, call)
    # Then nothing is claimed, and nobody else was asked
    rig.assert_all_ended_once()
    assert rig.upstreams.asked == ([] if script == "admit" else ["a"])
    assert not call.messages


async def test_a_client_that_leaves_while_its_second_attempt_is_admitted_leaves_no_claim() -> None:
    rig = Rig(Upstreams(a=status(500), b=stream("x")), route("a"), route("b"))
    settling, admitting = Hold(), Hold()
    rig.store.holds["settle"] = settling
    call = rig.call(stream=True)
    await settling.reached.wait()
    rig.store.holds["admit"] = admitting
    settling.go()
    await leave_at(rig, admitting, call)
    rig.assert_all_ended_once()
    assert rig.upstreams.asked == ["a"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda hold: Answer(before=[hold]),
        lambda hold: Answer([hold, ROLE]),
        lambda hold: Answer([ROLE, hold, delta("x")]),
        lambda hold: Answer([ROLE, delta("x"), hold, STOP]),
        lambda hold: Answer([ROLE, delta("x"), STOP, hold, DONE]),
        lambda hold: Answer([ROLE, delta("x"), STOP, DONE, hold]),
    ],
    ids=["sending", "headers", "role", "first-token", "finish", "done"],
)
async def test_a_client_that_leaves_during_a_stream_leaves_no_claim_and_no_connection(
    answer: object,
) -> None:
    hold = Hold()
    rig = Rig(Upstreams(a=answer(hold), b=stream("never")), route("a"), route("b"))  # type: ignore[operator]
    call = rig.call(stream=True)
    await leave_at(rig, hold, call)
    rig.assert_all_ended_once()
    assert rig.upstreams.asked == ["a"]
    assert {outcome for _, outcome, _ in rig.store.outcomes} <= {Outcome.NEUTRAL, Outcome.SUCCESS}


@pytest.mark.parametrize("at", ["sending", "body"])
async def test_a_client_that_leaves_before_a_whole_answer_leaves_no_claim(at: str) -> None:
    hold = Hold()
    answer = Answer(before=[hold]) if at == "sending" else Answer([hold, b"{}"], headers=JSON)
    rig = Rig(Upstreams(a=answer), route("a"))
    await leave_at(rig, hold, rig.call())
    rig.assert_all_ended_once()
    assert rig.store.outcomes == [("a", Outcome.NEUTRAL, 0)]


async def test_a_success_is_settled_once_with_its_first_token_before_it() -> None:
    # Given a store that is slow to note a first token
    rig = Rig(Upstreams(a=stream("x", "y")), route("a"))
    hold = rig.store.holds["first_token"] = Hold()
    # When the answer is over before that
    call = await rig.call(stream=True).finished()
    assert call.is_complete
    assert rig.store.standing
    hold.go()
    await rig.settled()
    # Then the claim ends after it
    assert rig.store.firsts == ["a"]
    assert rig.store.outcomes == [("a", Outcome.SUCCESS, 0)]
    rig.assert_all_ended_once()


async def test_a_store_that_is_away_hears_of_the_end_later() -> None:
    rig = Rig(Upstreams(a=whole("x")), route("a"))
    rig.store.raising["settle"] = [StateUnavailable()]
    call = await rig.ask()
    assert call.status == 200
    rig.assert_all_ended_once()


async def test_a_failure_that_the_store_cannot_hear_does_not_keep_the_next_route_waiting() -> None:
    rig = Rig(Upstreams(a=status(500), b=whole("x")), route("a"), route("b"))
    rig.store.raising["settle"] = [StateUnavailable()]
    call = await rig.call().finished()
    assert call.status == 200
    await rig.settled()
    rig.assert_all_ended_once()


async def test_an_admit_whose_answer_is_lost_is_undone() -> None:
    # Given a store that breaks off after the call may have taken effect
    rig = Rig(Upstreams(), route("a"))
    rig.store.raising["admit"] = [StateUnavailable(may_have_happened=True)]
    call = await rig.ask()
    # Then the claim's id is ended, granted or not
    assert call.status == 503
    assert list(rig.store.ended.values()) == [1]
    rig.assert_all_ended_once()


class Bug(Exception):
    """Something nobody expected."""


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_bug_while_answering_ends_the_claim(streamed: bool) -> None:
    # Given a client's end that breaks in a way nobody expected
    async def send(message: object) -> None:
        raise Bug

    rig = Rig(Upstreams(a=stream("x") if streamed else whole("x")), route("a"))
    record = RequestRecord(request_id="r", route="/")
    exchange = Exchange(
        chat=chat(stream=streamed),
        caller=Caller(id="c"),
        reply=HttpReply(send, record, endpoint_header=True),
        record=record,
    )
    # When the pipeline serves it
    with pytest.raises(Bug):
        await rig.pipeline.chat(exchange)
    # Then the bug comes out, and the claim has ended
    await rig.settled()
    rig.assert_all_ended_once()


async def test_a_bug_of_the_transport_ends_the_claim_and_is_told_in_our_shape() -> None:
    rig = Rig(Upstreams(a=Answer(before=[Bug()])), route("a"))
    call = rig.call()
    await call.finished()
    await rig.settled()
    assert call.status == 500
    assert json.loads(call.body)["error"]["code"] == "internal_error"
    rig.assert_all_ended_once()


async def test_a_bug_after_output_ends_the_stream_with_an_error_event() -> None:
    rig = Rig(Upstreams(a=Answer([ROLE, delta("x"), Bug()])), route("a"))
    call = rig.call(stream=True)
    await call.finished()
    await rig.settled()
    assert call.is_complete
    assert b'"internal_error"' in call.body
    assert DONE not in call.body
    rig.assert_all_ended_once()


async def test_the_end_of_a_drain_ends_the_claim_and_tells_the_client() -> None:
    # Given a stream that has begun
    hold = Hold()
    rig = Rig(Upstreams(a=Answer([ROLE, delta("x"), hold])), route("a"))
    call = rig.call(stream=True)
    await hold.reached.wait()
    # When the drain's time is over
    rig.lifecycle.cut_off()
    await call.finished()
    await rig.settled()
    # Then it ends with an error event
    assert b'"shutting_down"' in call.body
    assert call.is_complete
    rig.assert_all_ended_once()


async def test_many_requests_cancelled_anywhere_leave_nothing() -> None:
    # Given streams of every kind, among them failing ones
    answers = [stream("x", "y"), status(500), Answer([ROLE, httpx.ReadError("cut")]), stream("z")]
    for steps in range(60):
        rig = Rig(Upstreams(a=answers, b=stream("b")), route("a"), route("b"))
        calls = [rig.call(stream=n % 2 == 0) for n in range(4)]
        # When the clients leave after any number of turns of the loop
        for _ in range(steps):
            await asyncio.sleep(0)
        for call in calls:
            call.leave()
        for call in calls:
            await call.finished()
        await rig.settled()
        # Then nothing is left
        rig.assert_all_ended_once()
