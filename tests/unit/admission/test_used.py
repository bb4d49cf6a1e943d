"""What the store is told that an attempt has used of its endpoint's limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.admission.admit import Admission
from gateway.admission.claims import UNSENT, Claim, Claims
from gateway.admission.settlement import Settlement
from gateway.core.limits import UNLIMITED, EndpointLimits, Limit
from gateway.core.outcome import Outcome
from gateway.core.prompt import Prompt
from gateway.core.request import Usage
from gateway.errors import StateUnavailable
from gateway.protocols.output_bound import MOST_TOKENS
from tests.fakes.builders import plan, route
from tests.fakes.failure import Failed
from tests.fakes.holds import Hold
from tests.fakes.rig import admission_over
from tests.fakes.store import MemoryStore

FIRST: dict[str, Any] = {"order": "draw", "request_id": "r", "attempt": 1}
SAID = Prompt(tokens=70, output_tokens=500)
LIMITED = plan(route(limits=EndpointLimits(rpm=Limit(9))))
TOLD = Usage(prompt_tokens=90, completion_tokens=4)


class Rig:
    """An attempt that has been admitted, and whose answer has begun."""

    def __init__(self) -> None:
        self.store, self.claims = MemoryStore(), Claims("r1")
        self.settlement = Settlement(self.store, self.claims, lease_ms=2000)  # type: ignore[arg-type]
        self.admission: Admission = admission_over(self.store, self.claims, self.settlement)

    async def begin(self, usage: Usage | None = None, limits: bool = True) -> Claim:
        asked = LIMITED if limits else plan(route(limits=UNLIMITED))
        claim = await self.admission.admit(asked, SAID, **FIRST)
        assert isinstance(claim, Claim)
        claim.usage, claim.output_tokens = usage, 30
        return claim

    async def used(self) -> list[str]:
        await self.settlement.drain(5)
        return self.store.used


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize(
    ("usage", "used"),
    [
        (TOLD, "90 4"),
        (None, "70 30"),
        (Usage(), "70 30"),
        (Usage(completion_tokens=4), "0 4"),
        (Usage(prompt_tokens=10**20, completion_tokens=10**20), f"{MOST_TOKENS} {MOST_TOKENS}"),
    ],
    ids=["as told", "not told", "told as nothing", "in part", "absurd"],
)
async def test_an_answer_has_used_what_its_upstream_says_else_our_estimate(
    rig: Rig, usage: Usage | None, used: str
) -> None:
    claim = await rig.begin(usage)
    rig.admission.succeed(claim)
    assert await rig.used() == [used]


@pytest.mark.parametrize(
    ("failure", "used"),
    [
        (Failed(was_sent=False), UNSENT),
        (Failed(), "0 0"),
        (Failed(was_worked_on=True), "70 30"),
    ],
    ids=["not sent", "answered with an error", "broken off"],
)
async def test_a_failure_has_used_what_was_worked_on(rig: Rig, failure: Failed, used: str) -> None:
    claim = await rig.begin()
    await rig.admission.fail(claim, failure)
    assert await rig.used() == [used]


async def test_an_answer_that_its_client_left_has_used_what_came(rig: Rig) -> None:
    rig.admission.abandon(await rig.begin())
    assert await rig.used() == ["70 30"]


async def test_a_claim_that_is_given_back_has_used_nothing(rig: Rig) -> None:
    rig.admission.give_back(await rig.begin())
    assert await rig.used() == [UNSENT]


async def test_where_nothing_is_limited_nothing_is_told(rig: Rig) -> None:
    rig.admission.succeed(await rig.begin(TOLD, limits=False))
    assert await rig.used() == [""]


async def test_what_is_told_late_is_what_it_was_when_the_attempt_ended(rig: Rig) -> None:
    # Given a store that is away when a failure is told
    rig.store.raising["settle"] = [StateUnavailable()]
    claim = await rig.begin()
    await rig.admission.fail(claim, Failed(was_sent=False))
    # When the way of the request ends, as it does behind every attempt
    rig.admission.abandon(claim)
    # Then what is told once the store is back is not what a client's leaving would have used
    assert await rig.used() == [UNSENT]


async def test_a_caller_who_leaves_while_room_is_claimed_has_used_nothing(rig: Rig) -> None:
    # Given a claim that the store grants without being heard
    rig.store.holds["admit"] = hold = Hold()
    asking = asyncio.create_task(rig.admission.admit(LIMITED, SAID, **FIRST))
    await hold.reached.wait()
    # When the caller leaves
    asking.cancel()
    await asyncio.wait({asking})
    hold.go()
    # Then all of it comes back
    assert await rig.used() == [UNSENT]
    assert rig.store.outcomes == [("a", Outcome.NEUTRAL, 0)]
    assert not rig.store.standing


async def test_a_claim_whose_grant_was_lost_on_the_way_has_used_nothing(rig: Rig) -> None:
    admit = rig.store.admit

    async def lose(*args: Any, **values: Any) -> Any:
        await admit(*args, **values)
        raise StateUnavailable(may_have_happened=True)

    rig.store.admit = lose  # type: ignore[method-assign]
    with pytest.raises(StateUnavailable):
        await rig.admission.admit(LIMITED, SAID, **FIRST)
    assert await rig.used() == [UNSENT]
