"""Two attempts of a stream at a time: one answers, and both are accounted for."""

from __future__ import annotations

import logging

import httpx
import pytest

from gateway.core.outcome import Outcome
from gateway.errors import StateUnavailable
from tests.fakes.calls import Call
from tests.fakes.hedged import PROMPT, Hedged, both_stalled, stalled
from tests.fakes.holds import Hold
from tests.fakes.recorder import Recorder
from tests.fakes.upstreams import (
    DONE,
    ROLE,
    STOP,
    Answer,
    delta,
    empty_stream,
    event,
    status,
    stream,
)

CUT = httpx.ReadError("reset")


async def test_the_second_answers_where_the_first_does_not() -> None:
    # Given an endpoint that begins a stream and says nothing
    first, _ = stalled()
    rig = Hedged(a=first, b=stream("yes"))

    # When a stream is asked for
    call = await rig.end(rig.start())

    # Then the client has the other's answer, and nothing of the first
    assert call.body == ROLE + delta("yes") + STOP + DONE
    assert rig.upstreams.asked == ["a", "b"]
    assert (call.headers["x-concord-attempts"], call.headers["x-concord-endpoint"]) == ("2", "m:b")
    # And the first is not to blame, but its prompt has been worked on
    assert rig.ends == {"a": Outcome.NEUTRAL, "b": Outcome.SUCCESS}
    assert rig.uses["a"] == f"{PROMPT} 0"


async def test_the_room_of_the_one_that_has_lost_is_free_while_the_other_still_answers() -> None:
    first, _ = stalled()
    hold = Hold()
    rig = Hedged(a=first, b=Answer([ROLE, delta("yes"), hold, STOP, DONE]))
    call = rig.start()
    await hold.reached.wait()

    await rig.ended_at("a")
    assert "b" not in rig.ends
    hold.go()
    await rig.end(call)

    assert rig.ends == {"a": Outcome.NEUTRAL, "b": Outcome.SUCCESS}


async def test_the_first_goes_on_when_it_answers_first_and_the_second_is_cut_off() -> None:
    rig, call, hold, _ = await both_stalled([delta("mine"), STOP, DONE], [delta("late")])

    hold.go()
    await rig.end(call)

    assert call.body == ROLE + delta("mine") + STOP + DONE
    assert call.headers["x-concord-endpoint"] == "m:a"
    assert rig.ends == {"a": Outcome.SUCCESS, "b": Outcome.NEUTRAL}
    assert rig.uses["b"] == f"{PROMPT} 0"


async def test_the_first_wins_ties_and_what_the_second_has_said_is_paid_for() -> None:
    rig, call, hold, other = await both_stalled([delta("mine"), STOP, DONE], [delta("late")])

    other.go()
    hold.go()
    await rig.end(call)

    assert call.body == ROLE + delta("mine") + STOP + DONE
    assert rig.uses["b"] == f"{PROMPT} 1"


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "estimated"])
async def test_a_caller_pays_for_both(is_told: bool) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 80, "completion_tokens": 7}})
    rig, call, hold, other = await both_stalled(
        [delta("mine"), STOP, *([usage] if is_told else []), DONE], [delta("late")]
    )

    other.go()
    hold.go()
    await rig.end(call)

    told, events_of_both = 80 + 7 + PROMPT + 1, 2 * PROMPT + 2 + 1
    [(_, tokens, _)] = rig.caller_store.settled
    assert tokens == (told if is_told else events_of_both)


async def test_one_that_has_failed_before_is_to_blame_although_it_has_lost() -> None:
    # Given a second that fails while the first has no output
    first, hold = stalled(delta("mine"), STOP, DONE)
    rig = Hedged(a=first, b=status(500))
    call = rig.start()
    await rig.ended_at("b")
    hold.go()
    await rig.end(call)

    assert b"mine" in call.body
    assert rig.store.outcomes == [("b", Outcome.FAILURE, 500), ("a", Outcome.SUCCESS, 0)]


async def test_one_that_loses_while_its_failure_is_told_has_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig, call, hold, other = await both_stalled([CUT], [delta("yes"), STOP, DONE])
    telling = rig.store.holds_before["settle"] = Hold()
    hold.go()
    await telling.reached.wait()
    other.go()
    await call.until(lambda seen: DONE in seen.body)
    telling.go()
    with caplog.at_level(logging.INFO, "concord"):
        await rig.end(call)

    assert rig.ends == {"a": Outcome.FAILURE, "b": Outcome.SUCCESS}
    line = next(r.fields for r in caplog.records if r.getMessage() == "request")
    assert [one["error_type"] for one in line["attempt_log"]] == ["ReadError", None]


async def test_and_is_told_again_where_the_store_was_away_meanwhile() -> None:
    rig, call, hold, other = await both_stalled([CUT], [delta("yes"), STOP, DONE])
    telling = rig.store.holds_before["settle"] = Hold()
    rig.store.raising["settle"] = [StateUnavailable()]
    hold.go()
    await telling.reached.wait()
    other.go()
    await call.until(lambda seen: DONE in seen.body)
    telling.go()
    await rig.end(call)

    assert rig.ends == {"a": Outcome.FAILURE, "b": Outcome.SUCCESS}


async def test_what_the_loser_said_it_had_used_is_not_what_the_winner_has() -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 80, "completion_tokens": 7}})
    hold = Hold()
    rig = Hedged(a=Answer([usage, ROLE, hold]), b=stream("yes"))

    await rig.end(rig.start())

    [(_, tokens, _)] = rig.caller_store.settled
    assert tokens == 2 * PROMPT + 2
    assert rig.uses == {"a": "80 7", "b": f"{PROMPT} 2"}


async def test_the_second_goes_on_alone_when_the_first_fails() -> None:
    rig, call, hold, other = await both_stalled(
        [CUT], [delta("yes"), STOP, DONE], c=stream("never")
    )
    hold.go()
    await rig.ended_at("a")
    other.go()
    await rig.end(call)

    assert call.body == ROLE + delta("yes") + STOP + DONE
    assert rig.ends == {"a": Outcome.FAILURE, "b": Outcome.SUCCESS}
    assert rig.upstreams.asked == ["a", "b"]


async def both_failing(third: Answer | None) -> tuple[Hedged, Call]:
    others = {"c": third} if third else {}
    rig, call, hold, other = await both_stalled([CUT], [CUT], **others)
    hold.go()
    other.go()
    return rig, await rig.end(call)


async def test_when_both_fail_a_third_takes_over() -> None:
    rig, call = await both_failing(stream("yes"))

    assert call.body == ROLE + delta("yes") + STOP + DONE
    assert list(rig.store.decisions[-1].tried) == ["a", "b"]
    assert rig.ends == {"a": Outcome.FAILURE, "b": Outcome.FAILURE, "c": Outcome.SUCCESS}


async def test_when_both_fail_and_none_is_left_the_client_is_told() -> None:
    _, call = await both_failing(None)

    assert call.status == 502


async def test_an_answer_without_output_of_one_does_not_keep_the_other_from_going_on() -> None:
    rig, call, hold, other = await both_stalled([STOP, DONE], [delta("yes"), STOP, DONE])
    hold.go()
    await rig.ended_at("a")
    other.go()
    await rig.end(call)

    assert call.body == ROLE + delta("yes") + STOP + DONE


async def test_answers_without_output_of_both_are_better_than_none() -> None:
    hold = Hold()
    rig = Hedged(a=Answer([ROLE, hold, STOP, DONE]), b=empty_stream())
    call = rig.start()
    await rig.ended_at("b")
    hold.go()
    await rig.end(call)

    assert (call.status, call.body) == (200, ROLE + STOP + DONE)


async def test_a_stream_with_a_reason_to_say_nothing_wins() -> None:
    first, _ = stalled()
    rig = Hedged(a=first, b=Answer([ROLE, delta(finish="length"), DONE]))

    call = await rig.end(rig.start())

    assert call.body == ROLE + delta(finish="length") + DONE
    assert call.headers["x-concord-endpoint"] == "m:b"


async def test_after_output_the_winners_failure_is_the_clients() -> None:
    first, _ = stalled()
    rig = Hedged(a=first, b=Answer([ROLE, delta("x"), CUT]), c=stream("never"))

    call = await rig.end(rig.start())

    assert b'"error"' in call.body
    assert rig.upstreams.asked == ["a", "b"]
    assert rig.ends == {"a": Outcome.NEUTRAL, "b": Outcome.FAILURE}


@pytest.mark.parametrize("script", [None, "admit"], ids=["both sent", "the second not yet"])
async def test_a_client_that_leaves_leaves_neither(script: str | None) -> None:
    first, begun = stalled()
    second, other = stalled()
    rig = Hedged(a=first, b=second)
    call = rig.start()
    await begun.reached.wait()
    if script:
        other = rig.store.holds[script] = Hold()
    await other.reached.wait()

    call.leave()
    await call.finished()
    other.go()
    await rig.settled()

    rig.assert_all_ended_once()
    assert set(rig.ends.values()) == {Outcome.NEUTRAL}
    assert rig.upstreams.asked == (["a"] if script else ["a", "b"])


async def test_the_log_and_the_trace_tell_of_both(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    first, _ = stalled()
    rig = Hedged(tracer=recorder, a=first, b=stream("yes"))

    with caplog.at_level(logging.INFO, "concord"):
        await rig.end(rig.start())

    line = next(r.fields for r in caplog.records if r.getMessage() == "request")
    told = [
        (one["endpoint"], one["hedge"], one["status"], one["error_type"])
        for one in line["attempt_log"]
    ]
    assert told == [("m:a", False, None, "hedge_lost"), ("m:b", True, 200, None)]
    assert line["endpoint"] == "m:b"
    lost, won = recorder.spans("attempt")
    assert (lost.attributes or {})["error.type"] == "cancelled"
    assert ([e.name for e in lost.events], [e.name for e in won.events]) == ([], ["first_output"])
    assert (won.attributes or {})["concord.attempt"] == 2
