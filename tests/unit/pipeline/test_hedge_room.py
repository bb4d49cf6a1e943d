"""Whether a second endpoint is asked for a stream, and what keeps it away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from gateway.core.outcome import Outcome
from gateway.core.overrides import Overrides
from gateway.errors import StateUnavailable
from tests.fakes.gates import ScriptedGates
from tests.fakes.hedged import PROMPT, Hedged, both_stalled, stalled
from tests.fakes.holds import Hold
from tests.fakes.rig import ADMIN
from tests.fakes.upstreams import DONE, ROLE, STOP, Answer, delta, status, stream

CUT = httpx.ReadError("reset")


async def test_the_second_is_admitted_as_failover_between_the_two() -> None:
    first, _ = stalled()
    rig = Hedged(a=first, b=stream("yes"), c=stream("never"))

    await rig.end(rig.start())

    decision = rig.store.decisions[1]
    assert [at for at, _ in decision.candidates] == ["a", "b"]
    assert (list(decision.tried), decision.is_failover) == (["a"], True)
    assert [at for at, _ in decision.limited] == ["a", "b"]


@pytest.mark.parametrize("end", [delta("mine"), CUT], ids=["answers", "fails"])
async def test_a_second_that_is_not_sent_when_the_first_ends_never_is(
    end: bytes | Exception,
) -> None:
    # Given a first endpoint that ends while room is looked for at another
    first, hold = stalled(end, STOP, DONE)
    rig = Hedged(a=first, b=stream("by failover"))
    call = rig.start()
    await hold.reached.wait()
    admitting = rig.store.holds["admit"] = Hold()
    await admitting.reached.wait()
    hold.go()
    await rig.ended_at("a")
    admitting.go()
    await rig.end(call)

    # Then that is given back, and the other is asked only if the first has failed
    assert rig.store.outcomes.count(("b", Outcome.NEUTRAL, 0)) == 1
    assert rig.upstreams.asked == (["a"] if isinstance(end, bytes) else ["a", "b"])


def refuse(rig: Hedged) -> None:
    rig.store.closed["b"] = "retry_budget"


def cut_off_the_store(rig: Hedged) -> None:
    rig.store.raising["admit"] = [StateUnavailable()]


def change_overrides(rig: Hedged) -> None:
    rig.store.in_force = Overrides(epoch=7)


@pytest.mark.parametrize("end", [delta("mine"), CUT], ids=["answers", "fails"])
@pytest.mark.parametrize("keep_away", [refuse, cut_off_the_store, change_overrides])
async def test_whatever_keeps_the_second_away_the_first_goes_on(
    keep_away: Callable[[Hedged], None], end: bytes | Exception
) -> None:
    first, hold = stalled(end, STOP, DONE)
    rig = Hedged(a=first, b=stream("by failover"))
    call = rig.start()
    await hold.reached.wait()
    keep_away(rig)
    decided = len(rig.store.decisions)
    errors = rig.store.raising.get("admit")
    await rig.until(lambda: errors == [] or len(rig.store.decisions) > decided)
    await asyncio.sleep(0.02)  # were the second to be sent, it would be by now
    assert rig.upstreams.asked == ["a"]
    rig.store.closed.clear()
    hold.go()
    await rig.end(call)

    answer = end if isinstance(end, bytes) else delta("by failover")
    assert call.body == ROLE + answer + STOP + DONE


async def test_the_next_that_is_good_enough_is_asked_where_the_cheapest_has_no_room() -> None:
    first, _ = stalled()
    rig = Hedged(a=first, b=stream("never"), c=stream("yes"))
    rig.store.closed["b"] = "parallel_limit"

    call = await rig.end(rig.start())

    assert b"yes" in call.body
    assert rig.upstreams.asked == ["a", "c"]


@pytest.mark.parametrize("does_first_fail", [False, True], ids=["stalls", "fails"])
async def test_a_second_is_asked_where_there_is_no_failover(does_first_fail: bool) -> None:
    rig, call, hold, other = await both_stalled(
        [CUT], [delta("yes"), STOP, DONE], fallback_mode="strict"
    )
    if does_first_fail:
        hold.go()
        await rig.ended_at("a")
    other.go()
    await rig.end(call)

    assert call.body == ROLE + delta("yes") + STOP + DONE


async def test_in_line_at_a_gate_the_clock_does_not_run() -> None:
    # Given an attempt that stands in line for longer than it may take without output
    line = Hold()
    first, _ = stalled()
    rig = Hedged(gates=ScriptedGates(a=[line]), a=first, b=stream("yes"))
    call = rig.start()
    await line.reached.wait()
    await asyncio.sleep(0.1)
    assert len(rig.store.decisions) == 1
    # When it is sent
    line.go()
    await rig.end(call)
    # Then it has as long as any other
    assert rig.upstreams.asked == ["a", "b"]


async def test_a_second_that_was_cut_off_in_line_has_used_nothing() -> None:
    first, hold = stalled(delta("mine"), STOP, DONE)
    line = Hold()
    rig = Hedged(gates=ScriptedGates(b=[line]), a=first, b=stream("never"))
    call = rig.start()
    await line.reached.wait()
    hold.go()
    await rig.end(call)

    assert rig.uses["b"] == "unsent"
    [(_, tokens, _)] = rig.caller_store.settled
    assert tokens == PROMPT + 2


@pytest.mark.parametrize("which", ["whole", "pinned", "failover"])
async def test_no_second_is_asked_of_what_is_no_first_stream(which: str) -> None:
    hold = Hold()
    silent = Answer(before=[hold])
    answers = {"a": silent, "b": stream("never")}
    if which == "failover":
        answers = {"a": status(500), "b": silent, "c": stream("never")}
    rig = Hedged(**answers)
    pin = {"authorization": f"Bearer {ADMIN}", "x-route-pin": "a"} if which == "pinned" else None
    call = rig.start(headers=pin, stream=which != "whole")
    await hold.reached.wait()
    asked = list(rig.upstreams.asked)
    await asyncio.sleep(0.1)
    call.leave()
    await rig.end(call)

    assert rig.upstreams.asked == asked
