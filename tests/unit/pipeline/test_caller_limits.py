"""Step 4 of the way: a limited caller's room is reserved once, and settled by what was used."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from gateway.core.limits import Limit, Limits
from gateway.core.outcome import Outcome
from gateway.dispatch.kinds import Kind
from gateway.errors import StateUnavailable
from tests.fakes import builders
from tests.fakes.caller_store import GRANTED, refused
from tests.fakes.calls import Call
from tests.fakes.gates import ScriptedGates
from tests.fakes.holds import Hold
from tests.fakes.rig import Rig
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

SECRET = "sk-alice"
LIMITS = Limits(rpm=Limit(60), tpm=Limit(1000))
USAGE = event({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 12}})
PROMPT = 25
"""What the prompt of these tests is estimated at."""


class Limited(Rig):
    """Its caller has limits."""

    def __init__(
        self,
        upstreams: Upstreams,
        *locations: str,
        limits: Limits = LIMITS,
        gates: ScriptedGates | None = None,
    ) -> None:
        routes = [builders.route(location) for location in locations]
        keys = [builders.key(SECRET, "alice", limits=limits)]
        super().__init__(
            upstreams,
            *routes,
            config=builders.config(builders.model(*routes), keys=keys),
            gates=gates,
        )

    def start(self, **fields: Any) -> Call:
        fields = {"content": "x" * 4 * PROMPT, "max_tokens": 50, **fields}
        return self.call(headers={"authorization": f"Bearer {SECRET}"}, **fields)

    async def request(self, **fields: Any) -> Call:
        call = await self.start(**fields).finished()
        await self.settled()
        self.assert_all_ended_once()
        return call


def error(call: Call) -> dict[str, Any]:
    return json.loads(call.body)["error"]


async def test_a_caller_without_limits_asks_nothing_of_them() -> None:
    rig = Limited(Upstreams(a=whole("x")), "a", limits=Limits())
    assert (await rig.request()).status == 200
    assert rig.caller_store.asked == []


async def test_a_request_reserves_before_it_goes_upstream_and_is_settled_after() -> None:
    answer = Answer([ROLE, delta("a"), STOP, USAGE, DONE])
    rig = Limited(Upstreams(a=answer), "a")
    call = await rig.request(stream=True)
    assert call.status == 200
    assert [need.tokens for need in rig.caller_store.asked] == [PROMPT + 50]
    assert rig.caller_store.scopes == ["key:alice"]
    assert rig.caller_store.settled == [(True, 42, 0)]


class TestRefused:
    async def test_is_told_which_limit_and_when_to_come_again(self) -> None:
        rig = Limited(Upstreams(), "a")
        rig.caller_store.answers = [
            refused("key:alice rpm", rpm=60, rpm_left=0, rpm_reset_ms=60_100)
        ]
        call = await rig.request()
        assert call.status == 429
        assert call.headers["retry-after"] == "12"
        assert call.headers["x-ratelimit-limit-requests"] == "60"
        assert call.headers["x-ratelimit-remaining-requests"] == "0"
        assert call.headers["x-ratelimit-reset-requests"] == "1m1s"
        assert "x-ratelimit-limit-tokens" not in call.headers
        assert error(call)["code"] == "rate_limit_exceeded"
        assert "60 requests per minute" in error(call)["message"]

    async def test_for_want_of_money_shall_not_try_again(self) -> None:
        rig = Limited(Upstreams(), "a")
        rig.caller_store.answers = [refused("key:alice budget", status="spent")]
        call = await rig.request()
        assert call.status == 429
        assert call.headers["x-should-retry"] == "false"
        assert error(call)["code"] == error(call)["type"] == "insufficient_quota"

    async def test_takes_no_claim(self) -> None:
        rig = Limited(Upstreams(), "a")
        rig.caller_store.answers = [refused("key:alice rpm")]
        await rig.request()
        assert rig.store.decisions == []

    async def test_gives_back_a_claim_that_was_granted_in_the_same_flush(self) -> None:
        rig = Limited(Upstreams(a=whole("x")), "a")
        await rig.request()
        rig.caller_store.answers = [refused("key:alice rpm")]
        call = await rig.request()
        assert call.status == 429
        assert len(rig.store.decisions) == 2
        assert rig.store.outcomes[-1] == ("a", Outcome.NEUTRAL, 0)
        assert rig.upstreams.asked == ["a"]

    async def test_gives_back_a_claim_that_comes_after_the_refusal(self) -> None:
        rig = Limited(Upstreams(a=whole("x")), "a")
        await rig.request()
        rig.caller_store.answers = [refused("key:alice rpm")]
        hold = rig.store.holds["admit"] = Hold()
        call = rig.start()
        await hold.reached.wait()
        await asyncio.sleep(0)
        hold.go()
        await call.finished()
        await rig.settled()
        assert call.status == 429
        rig.assert_all_ended_once()

    async def test_by_an_endpoint_gives_the_reservation_back(self) -> None:
        rig = Limited(Upstreams(a=whole("x")), "a")
        for _ in range(2):  # alone, and in one flush
            rig.store.closed = {"a": "circuit_open"}
            assert (await rig.request()).status == 503
            assert rig.caller_store.settled[-1] == (False, 0, 0)
            rig.store.closed = {}
            await rig.request()


class TestTheOrderOfTheTwoQuestions:
    async def test_limits_come_first_while_nothing_is_known_of_the_caller(self) -> None:
        rig = Limited(Upstreams(a=whole("x")), "a")
        hold = rig.caller_store.holds["reserve"] = Hold()
        call = rig.start()
        await hold.reached.wait()
        assert rig.store.decisions == []
        hold.go()
        await call.finished()
        assert len(rig.store.decisions) == 1

    async def test_both_leave_together_when_there_was_room(self) -> None:
        rig = Limited(Upstreams(a=whole("x")), "a")
        await rig.request()
        reserving = rig.caller_store.holds_before["reserve"] = Hold()
        admitting = rig.store.holds_before["admit"] = Hold()
        call = rig.start()
        await reserving.reached.wait()
        await admitting.reached.wait()
        admitting.go()
        reserving.go()
        assert (await call.finished()).status == 200

    async def test_limits_come_first_when_there_was_none(self) -> None:
        rig = Limited(Upstreams(a=whole("x")), "a")
        rig.caller_store.answers = [refused("", status="reserved")]
        await rig.request()
        hold = rig.caller_store.holds["reserve"] = Hold()
        call = rig.start()
        await hold.reached.wait()
        assert len(rig.store.decisions) == 1
        hold.go()
        assert (await call.finished()).status == 200

    async def test_failover_reserves_nothing_again(self) -> None:
        rig = Limited(Upstreams(a=status(500), b=whole("x")), "a", "b")
        assert (await rig.request()).status == 200
        assert len(rig.caller_store.asked) == 1
        assert len(rig.store.decisions) == 2


class TestWhatIsSettled:
    @pytest.mark.parametrize(
        ("answer", "settled"),
        [
            (stream("a", "b"), (True, PROMPT + 3, 0)),
            (Answer([ROLE, delta("a"), STOP, USAGE, DONE]), (True, 42, 0)),
            (Answer([ROLE, delta("a"), httpx.ReadError("cut")]), (True, PROMPT + 1, 0)),
            (Answer([ROLE, httpx.ReadError("cut")]), (True, PROMPT, 0)),
            (empty_stream(), (True, PROMPT, 0)),
            (status(500), (True, 0, 0)),
            (status(400), (True, 0, 0)),
            (unreachable(), (False, 0, 0)),
        ],
        ids=["told-nothing", "told", "cut", "cut-early", "empty", "500", "400", "unreachable"],
    )
    async def test_of_a_stream(self, answer: Answer, settled: tuple[bool, int, int]) -> None:
        rig = Limited(Upstreams(a=answer), "a")
        await rig.request(stream=True)
        assert rig.caller_store.settled == [settled]

    async def test_of_an_error_after_output_is_what_has_come(self) -> None:
        broken = event({"error": {"message": "no", "type": "t", "code": 500}})
        rig = Limited(Upstreams(a=Answer([ROLE, delta("a"), delta("b"), broken])), "a")
        await rig.request(stream=True)
        assert rig.caller_store.settled == [(True, PROMPT + 2, 0)]

    async def test_of_a_whole_answer_without_usage_is_its_size(self) -> None:
        rig = Limited(Upstreams(a=whole("x" * 400)), "a")
        call = await rig.request()
        assert rig.caller_store.settled == [(True, PROMPT + len(call.body) // 4, 0)]

    async def test_counts_attempts_that_were_worked_on_in_vain(self) -> None:
        cut = Answer([ROLE, httpx.ReadError("cut")])
        good = Answer([ROLE, delta("a"), STOP, USAGE, DONE])
        rig = Limited(Upstreams(a=cut, b=good), "a", "b")
        await rig.request(stream=True)
        assert rig.caller_store.settled == [(True, PROMPT + 42, 0)]

    async def test_of_a_client_that_leaves_is_what_it_got(self) -> None:
        hold = Hold()
        rig = Limited(Upstreams(a=Answer([ROLE, delta("a"), delta("b"), hold])), "a")
        call = rig.start(stream=True)
        await hold.reached.wait()
        await call.until(lambda call: call.body.count(b"\n\n") >= 3)
        call.leave()
        await call.finished()
        await rig.settled()
        rig.assert_all_ended_once()
        assert rig.caller_store.settled == [(True, PROMPT + 2, 0)]

    async def test_of_a_client_that_leaves_before_any_output_is_its_prompt(self) -> None:
        hold = Hold()
        rig = Limited(Upstreams(a=Answer(before=[hold])), "a")
        call = rig.start(stream=True)
        await hold.reached.wait()
        call.leave()
        await call.finished()
        await rig.settled()
        rig.assert_all_ended_once()
        assert rig.caller_store.settled == [(True, PROMPT, 0)]


async def test_a_request_that_was_never_sent_for_want_of_a_place_costs_nothing() -> None:
    rig = Limited(Upstreams(), "a", gates=ScriptedGates(a=[Kind.SATURATED]))
    assert (await rig.request()).status == 503
    assert rig.caller_store.settled == [(False, 0, 0)]


async def test_a_request_that_is_sent_elsewhere_after_a_wait_is_charged_once() -> None:
    gates = ScriptedGates(a=[Kind.SATURATED])
    rig = Limited(Upstreams(b=whole("x")), "a", "b", gates=gates)
    assert (await rig.request()).status == 200
    [(is_sent, tokens, _)] = rig.caller_store.settled
    assert (is_sent, tokens >= PROMPT, tokens < 2 * PROMPT + 50) == (True, True, True)


async def test_nor_does_one_whose_client_leaves_in_line() -> None:
    hold = Hold()
    rig = Limited(Upstreams(), "a", gates=ScriptedGates(a=[hold]))
    call = rig.start()
    await hold.reached.wait()
    call.leave()
    await call.finished()
    await rig.settled()
    assert rig.caller_store.settled == [(False, 0, 0)]


@pytest.mark.parametrize("known", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize("has_run", [False, True], ids=["not run", "run"])
@pytest.mark.parametrize("script", ["reserve", "admit"])
async def test_a_client_that_leaves_during_a_script_leaves_nothing(
    script: str, has_run: bool, known: bool
) -> None:
    rig = Limited(Upstreams(a=whole("x")), "a")
    if known:
        await rig.request()
    asked = len(rig.upstreams.asked)
    store = rig.caller_store if script == "reserve" else rig.store
    hold = (store.holds if has_run else store.holds_before)[script] = Hold()
    call = rig.start()
    await hold.reached.wait()
    call.leave()
    await call.finished()
    hold.go()
    await rig.settled()
    rig.assert_all_ended_once()
    assert len(rig.upstreams.asked) == asked


@pytest.mark.parametrize("known", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize("script", ["reserve", "admit"])
@pytest.mark.parametrize("may_have_happened", [False, True])
async def test_while_redis_is_away_nothing_is_served_and_nothing_left(
    script: str, known: bool, may_have_happened: bool
) -> None:
    rig = Limited(Upstreams(a=whole("x")), "a")
    if known:
        await rig.request()
    store = rig.caller_store if script == "reserve" else rig.store
    store.raising[script] = [StateUnavailable(may_have_happened=may_have_happened)]
    call = await rig.start().finished()
    await rig.settled()
    assert call.status == 503
    assert error(call)["code"] == "state_unavailable"
    rig.assert_all_ended_once()


async def test_many_requests_cancelled_anywhere_leave_nothing() -> None:
    answers = [stream("x", "y"), status(500), Answer([ROLE, httpx.ReadError("cut")]), stream("z")]
    for steps in range(60):
        rig = Limited(Upstreams(a=answers, b=stream("b")), "a", "b")
        rig.caller_store.answers = [GRANTED, refused("key:alice parallel")]
        calls = [rig.start(stream=n % 2 == 0) for n in range(4)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for call in calls:
            call.leave()
        for call in calls:
            await call.finished()
        await rig.settled()
        rig.assert_all_ended_once()
