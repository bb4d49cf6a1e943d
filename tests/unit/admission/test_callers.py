"""Limits of callers: what a request needs, what it has used, and what is remembered meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from gateway.admission import callers as callers_module
from gateway.admission.callers import CallerLimits, Used
from gateway.admission.claims import Claims
from gateway.admission.reservations import Reservation, Reservations
from gateway.admission.settlement import Settlement
from gateway.core.caller import Caller
from gateway.core.limits import Left, Limit, Limits, Room, Scope
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.core.request import Usage
from gateway.errors import BudgetSpent, CallerLimited, StateUnavailable
from tests.fakes.builders import chat, model, route
from tests.fakes.caller_store import GRANTED, MemoryCallerStore, refused
from tests.fakes.holds import Hold
from tests.fakes.store import MemoryStore

KEY = Scope(kind="key", id="alice", limits=Limits(rpm=Limit(60), tpm=Limit(100_000)))
ALICE = Caller(id="alice", scopes=(KEY,), limit_tag="team:acme")
SIZED = Prompt(tokens=100)
PRICED = {"prompt": "1", "completion": "2", "image": "0.5"}
"""A prompt token costs 1000 billionths, one of output 2000."""


class Desk:
    """The limits over a store in memory, at a time that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.store = MemoryCallerStore()
        self.reservations = Reservations(self.store, "r1", lease_ms=1000)  # type: ignore[arg-type]
        self.settlement = Settlement(MemoryStore(), Claims("r1"), lease_ms=1000)  # type: ignore[arg-type]
        self.limits = CallerLimits(
            self.store,  # type: ignore[arg-type]
            self.reservations,
            self.settlement,
            window_ms=60_000,
            clock=lambda: self.now_s,
        )

    def request(
        self,
        caller: Caller = ALICE,
        *,
        prompt: Prompt = SIZED,
        routes: tuple[Any, ...] = (),
        pricing: dict[str, str] | None = None,
        content: Any = "hi",
        **fields: Any,
    ) -> Reservation:
        of = model(*routes, pricing=pricing or {})
        made = self.limits.reservation(caller, of, chat(content, **fields), prompt)
        assert made is not None
        return made

    async def refusal(self, request: Reservation | None = None) -> CallerLimited:
        with pytest.raises(CallerLimited) as raised:
            await self.limits.reserve(request or self.request())
        return raised.value

    async def used(self, request: Reservation, **used: Any) -> tuple[bool, int, int]:
        """What is settled of a request that has used so much."""
        await self.limits.reserve(request)
        self.limits.settle(request, Used(**used))
        await self.settlement.drain(5)
        return self.store.settled[-1]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_caller_without_limits_has_nothing_to_reserve(desk: Desk) -> None:
    made = desk.limits.reservation(Caller(id="bob"), model(), chat(), NO_PROMPT)
    assert made is None


class TestWhatARequestNeeds:
    def test_is_its_prompt_and_its_bound(self, desk: Desk) -> None:
        assert desk.request(max_tokens=50).need.tokens == 150

    def test_counts_the_bound_for_every_choice(self, desk: Desk) -> None:
        assert desk.request(max_tokens=50, n=3).need.tokens == 250

    def test_has_the_prompt_estimated_where_nobody_else_has(self, desk: Desk) -> None:
        assert desk.request(prompt=NO_PROMPT, content="x" * 400, max_tokens=1).need.tokens == 101

    def test_is_bounded_by_the_widest_route(self, desk: Desk) -> None:
        routes = (route("a", max_output_length=20), route("b", max_output_length=30))
        assert desk.request(routes=routes, max_tokens=50).need.tokens == 130
        assert desk.request(routes=routes).need.tokens == 130

    def test_is_not_bounded_while_a_route_has_no_bound(self, desk: Desk) -> None:
        routes = (route("a", max_output_length=20), route("b"))
        assert desk.request(routes=routes, max_tokens=50).need.tokens == 150

    @pytest.mark.parametrize(("tpm", "output"), [(100_000, 1024), (4096, 1024), (1000, 250)])
    def test_without_a_bound_is_1024_or_a_quarter_of_the_limit(
        self, desk: Desk, tpm: int, output: int
    ) -> None:
        scope = Scope(kind="key", id="alice", limits=Limits(tpm=Limit(tpm)))
        caller = Caller(id="alice", scopes=(KEY, scope), limit_tag="key:alice")
        assert desk.request(caller).need.tokens == 100 + output

    def test_is_never_nothing(self, desk: Desk) -> None:
        need = desk.request(prompt=NO_PROMPT, content="", max_tokens=0).need
        assert need.tokens == 1

    def test_stays_a_number_that_can_be_added_up(self, desk: Desk) -> None:
        need = desk.request(max_tokens=10**40, pricing=PRICED).need
        assert (need.tokens, need.nanousd) == (10**12, 10**15)

    def test_costs_what_the_model_costs(self, desk: Desk) -> None:
        assert desk.request(max_tokens=50, pricing=PRICED).need.nanousd == 200_000

    def test_costs_its_images(self, desk: Desk) -> None:
        picture = {"type": "image_url", "image_url": {"url": "data:,"}}
        need = desk.request(max_tokens=50, pricing=PRICED, content=[picture, picture]).need
        assert need.nanousd == 1_000_200_000

    def test_is_asked_for_under_the_callers_tag(self, desk: Desk) -> None:
        own = Scope(kind="model", id="alice:m", limits=Limits(rpm=Limit(1)))
        caller = Caller(id="alice", scopes=(KEY,), model_scopes={"m": own}, limit_tag="team:acme")
        request = desk.request(caller)
        assert (request.tag, request.scopes) == ("team:acme", (KEY, own))


class TestWhatWasUsed:
    async def test_is_what_the_upstream_says(self, desk: Desk) -> None:
        usage = Usage(prompt_tokens=80, completion_tokens=20, cached_tokens=80)
        request = desk.request(pricing={**PRICED, "input_cache_reads": "0.1"})
        used = await desk.used(request, is_sent=True, prompts=1, usage=usage, output_tokens=7)
        assert used == (True, 100, 80 * 100 + 20 * 2000)

    @pytest.mark.parametrize("usage", [None, Usage()], ids=["silent", "nothing"])
    async def test_is_estimated_where_it_does_not(self, desk: Desk, usage: Usage | None) -> None:
        request = desk.request(pricing=PRICED)
        used = await desk.used(request, is_sent=True, prompts=1, usage=usage, output_tokens=7)
        assert used == (True, 107, 100 * 1000 + 7 * 2000)

    async def test_counts_every_attempt_that_was_worked_on(self, desk: Desk) -> None:
        usage = Usage(prompt_tokens=80, completion_tokens=20)
        request = desk.request(pricing=PRICED)
        used = await desk.used(request, is_sent=True, prompts=3, usage=usage)
        assert used == (True, 100 + 200, 80_000 + 40_000 + 200_000)

    async def test_is_nothing_where_every_attempt_was_turned_away(self, desk: Desk) -> None:
        assert await desk.used(desk.request(pricing=PRICED), is_sent=True) == (True, 0, 0)

    async def test_gives_all_back_where_nothing_was_sent(self, desk: Desk) -> None:
        assert await desk.used(desk.request()) == (False, 0, 0)


class TestEnding:
    async def test_is_told_once(self, desk: Desk) -> None:
        request = desk.request()
        await desk.limits.reserve(request)
        assert len(desk.reservations) == 1
        desk.limits.settle(request, Used())
        desk.limits.settle(request, Used())
        assert len(desk.reservations) == 0
        await desk.settlement.drain(5)
        desk.store.assert_all_ended_once()
        assert desk.store.ended == {request.id: 1}

    async def test_is_repeated_until_the_store_has_heard(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gateway.admission.settlement.RETRY_S", 0.001)
        request = desk.request()
        await desk.limits.reserve(request)
        desk.store.raising["settle"] = [StateUnavailable(), StateUnavailable()]
        desk.limits.settle(request, Used())
        await desk.settlement.drain(5)
        assert desk.store.ended == {request.id: 1}

    async def test_of_a_refused_one_is_not_told(self, desk: Desk) -> None:
        desk.store.answers = [refused("key:alice rpm")]
        request = desk.request()
        await desk.refusal(request)
        desk.limits.settle(request, Used())
        await desk.settlement.drain(5)
        assert not desk.store.ended

    async def test_of_one_whose_answer_was_lost_is_told(self, desk: Desk) -> None:
        desk.store.raising["reserve"] = [StateUnavailable(may_have_happened=True)]
        request = desk.request()
        with pytest.raises(StateUnavailable):
            await desk.limits.reserve(request)
        desk.limits.settle(request, Used())
        await desk.settlement.drain(5)
        assert desk.store.ended == {request.id: 1}

    async def test_of_one_that_was_never_asked_for_is_not_told(self, desk: Desk) -> None:
        desk.store.raising["reserve"] = [StateUnavailable()]
        request = desk.request()
        with pytest.raises(StateUnavailable):
            await desk.limits.reserve(request)
        desk.limits.settle(request, Used())
        await desk.settlement.drain(5)
        assert not desk.store.ended

    async def test_of_one_whose_caller_left_meanwhile_is_told(self, desk: Desk) -> None:
        hold = desk.store.holds["reserve"] = Hold()
        request = desk.request()
        asking = asyncio.create_task(desk.limits.reserve(request))
        await hold.reached.wait()
        asking.cancel()
        await asyncio.wait({asking})
        desk.limits.settle(request, Used())
        await desk.settlement.drain(5)
        assert desk.store.settled == [(False, 0, 0)]
        desk.store.assert_all_ended_once()


class TestARefusal:
    async def test_tells_what_is_left_in_the_headers(self, desk: Desk) -> None:
        desk.store.answers = [refused("key:alice rpm", rpm=60, rpm_left=0, rpm_reset_ms=900)]
        request = desk.request()
        await desk.refusal(request)
        assert request.room == Room(requests=Left(60, 0, 900))

    @pytest.mark.parametrize("limit", ["key:alice rpm", "key:alice tpm"])
    async def test_is_repeated_for_a_second_without_asking(self, desk: Desk, limit: str) -> None:
        desk.store.answers = [refused(limit, retry_after_ms=5_000)]
        first = await desk.refusal()
        desk.now_s = 0.9
        second = await desk.refusal()
        assert len(desk.store.asked) == 1
        assert (first.retry_after_s, second.retry_after_s) == (5, 5)
        assert second.limit == first.limit
        desk.now_s = 1.0
        await desk.limits.reserve(desk.request())
        assert len(desk.store.asked) == 2

    async def test_is_not_repeated_beyond_its_own_end(self, desk: Desk) -> None:
        desk.store.answers = [refused("key:alice rpm", retry_after_ms=300)]
        await desk.refusal()
        desk.now_s = 0.3
        await desk.limits.reserve(desk.request())

    async def test_counts_down_while_it_is_repeated(self, desk: Desk) -> None:
        desk.store.answers = [refused("key:alice rpm", retry_after_ms=4_200)]
        assert (await desk.refusal()).retry_after_s == 5
        desk.now_s = 0.5
        assert (await desk.refusal()).retry_after_s == 4

    async def test_is_not_repeated_to_a_request_that_needs_less(self, desk: Desk) -> None:
        desk.store.answers = [refused("key:alice tpm")]
        await desk.refusal(desk.request(max_tokens=500))
        await desk.refusal(desk.request(max_tokens=500))
        await desk.limits.reserve(desk.request(max_tokens=499))
        assert len(desk.store.asked) == 2

    @pytest.mark.parametrize("limit", ["key:alice parallel", "key:alice budget"])
    async def test_that_the_end_of_a_request_may_lift_is_not_repeated(
        self, desk: Desk, limit: str
    ) -> None:
        desk.store.answers = [refused(limit)]
        await desk.refusal()
        await desk.limits.reserve(desk.request())
        assert len(desk.store.asked) == 2

    async def test_for_spent_money_is_repeated(self, desk: Desk) -> None:
        desk.store.answers = [refused("key:alice budget", status="spent", retry_after_ms=0)]
        for _ in range(2):
            error = await desk.refusal()
            assert isinstance(error, BudgetSpent)
            assert error.retry_after_s is None
        assert len(desk.store.asked) == 1

    async def test_is_one_callers_own(self, desk: Desk) -> None:
        desk.store.answers = [refused("key:alice rpm")]
        await desk.refusal()
        await desk.limits.reserve(desk.request(Caller(id="bob", scopes=(KEY,), limit_tag="t")))

    async def test_for_one_model_is_not_repeated_for_another(self, desk: Desk) -> None:
        own = Scope(kind="model", id="alice:m", limits=Limits(rpm=Limit(1)))
        caller = Caller(id="alice", scopes=(KEY,), model_scopes={"m": own}, limit_tag="t")
        desk.store.answers = [refused("model:alice:m rpm")]
        await desk.refusal(desk.request(caller))
        other = desk.limits.reservation(caller, model(id="n"), chat(), NO_PROMPT)
        assert other
        await desk.limits.reserve(other)

    async def test_is_forgotten_when_many_others_have_come(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(callers_module, "MOST_REMEMBERED", 3)
        desk.store.answers = [refused("key:alice rpm")]
        await desk.refusal()
        for number in range(3):
            caller = Caller(id=f"c{number}", scopes=(KEY,), limit_tag="t")
            await desk.limits.reserve(desk.request(caller))
        await desk.limits.reserve(desk.request())


async def test_the_next_request_fits_probably_when_the_last_answer_said_so(desk: Desk) -> None:
    assert not desk.limits.fits_probably(desk.request())
    await desk.limits.reserve(desk.request())
    assert desk.limits.fits_probably(desk.request())
    desk.store.answers = [refused("key:alice rpm")]
    await desk.refusal()
    assert not desk.limits.fits_probably(desk.request())


async def test_no_more_fit_probably_than_there_was_room_for(desk: Desk) -> None:
    desk.store.answers = [structs.replace(GRANTED, fits_again=2)]
    await desk.limits.reserve(desk.request())
    assert [desk.limits.fits_probably(desk.request()) for _ in range(4)] == [True] * 2 + [False] * 2
    await desk.limits.reserve(desk.request())
    assert desk.limits.fits_probably(desk.request()), "the next answer counts anew"
