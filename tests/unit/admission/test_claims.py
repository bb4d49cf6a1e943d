"""Claims of a replica: fresh ids, one end each, and what is renewed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.admission.admit import USUAL_DRAWS, Refused
from gateway.admission.claims import Claim, Claims, batches, new_replica_id
from gateway.admission.draws import draws
from gateway.admission.reservations import Reservations
from gateway.admission.secret import Secret
from gateway.admission.settlement import Settlement
from gateway.admission.supplies import Supplies
from gateway.admission.upkeep import Upkeep
from gateway.core.outcome import Outcome
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.core.reasons import Reason
from gateway.errors import StateUnavailable
from gateway.state.decision import Decision
from gateway.state.policy import Policy
from gateway.state.replies import AdmitReply
from tests.fakes.builders import plan, route
from tests.fakes.caller_store import MemoryCallerStore
from tests.fakes.failure import Failed
from tests.fakes.rig import POLICY, admission_over
from tests.fakes.store import MemoryStore, admit_reply

FIRST: dict[str, Any] = {"order": "draw", "request_id": "r", "attempt": 1}


def claim(id: str, **values: object) -> Claim:
    return Claim(id=id, route=route(**values), policy=POLICY, dropped={})  # type: ignore[arg-type]


def test_ids_are_the_replicas_own_and_never_repeat() -> None:
    claims = Claims("r1")
    assert [claims.next_id() for _ in range(3)] == ["r1.1", "r1.2", "r1.3"]
    assert len({new_replica_id() for _ in range(100)}) == 100


def test_only_the_first_end_of_a_claim_counts() -> None:
    claims, one = Claims("r1"), claim("r1.1")
    claims.add(one)
    assert claims.holds(one)
    assert [claims.end(one), claims.end(one)] == [True, False]
    assert not claims.holds(one)
    assert len(claims) == 0
    assert list(claims.by_model()) == []


def test_claims_are_renewed_in_batches_of_at_most_128() -> None:
    claims = Claims("r1")
    for _ in range(300):
        claims.add(claim(claims.next_id()))
    [(model_id, held)] = claims.by_model()
    assert model_id == "m"
    assert [len(batch) for batch in batches(held)] == [128, 128, 44]


class RenewingStore(MemoryStore):
    """Knows of renewals, too."""

    async def renew(
        self, model_id: str, *, firsts: list[str], **_: object
    ) -> tuple[list[str], list[str]]:
        return [], [one for one in firsts if self.standing[one] not in self.firsts]

    async def reassert(self, model_id: str, *, claim: str, location: str, **_: object) -> bool:
        self.standing[claim] = location
        return True

    async def reap(self, model_id: str) -> int:
        return 0


def upkeep_over(store: RenewingStore, claims: Claims) -> tuple[Upkeep, Settlement]:
    settlement = Settlement(store, claims, lease_ms=1000)  # type: ignore[arg-type]
    upkeep = Upkeep(
        store,  # type: ignore[arg-type]
        claims,
        Reservations(MemoryCallerStore(), "r1", lease_ms=1000),  # type: ignore[arg-type]
        settlement,
        Secret(None),
        supplies=Supplies(None, claims, lease_ms=1000),  # type: ignore[arg-type]
        models=lambda: ["m"],
        about=lambda: "",
        lease_ms=1000,
        heartbeat_s=1,
        replica_ttl_ms=1000,
    )
    return upkeep, settlement


async def test_a_claim_that_the_store_has_lost_is_put_back_only_while_it_runs() -> None:
    # Given two claims that the store has lost, of which one ends while it is asked
    store, claims = RenewingStore(), Claims("r1")
    upkeep, _ = upkeep_over(store, claims)
    running, ended = claim("r1.1"), claim("r1.2")
    claims.add(running)
    claims.add(ended)

    async def renew(model_id: str, **_: object) -> tuple[list[str], list[str]]:
        claims.end(ended)
        return ["r1.1", "r1.2"], []

    store.renew = renew  # type: ignore[method-assign]
    # When leases are renewed
    await upkeep.renew()
    # Then only the running one stands again
    assert store.standing == {"r1.1": "a"}


async def test_a_first_output_that_the_store_has_not_heard_of_is_told_again() -> None:
    # Given a store that is away when the first of two streams has its first output
    store, claims = RenewingStore(), Claims("r1")
    upkeep, settlement = upkeep_over(store, claims)
    streams = [claim("r1.1", location="a"), claim("r1.2", location="b")]
    for one in streams:
        claims.add(one)
        store.standing[one.id] = one.route.location
    store.raising["first_token"] = [StateUnavailable()]
    for one in streams:
        one.first = True
        settlement.first_token(one)
        await settlement.drain(5)
    assert store.firsts == ["b"]
    # When leases are renewed, twice
    for _ in range(2):
        await upkeep.renew()
        await settlement.drain(5)
    # Then it knows of both, and was told no more than that
    assert store.firsts == ["b", "a"]


async def test_a_refusal_tells_static_reasons_and_those_of_the_store() -> None:
    store, claims = MemoryStore(), Claims("r1")
    store.closed = {"a": "circuit_open"}
    settlement = Settlement(store, claims, lease_ms=1000)  # type: ignore[arg-type]
    admission = admission_over(store, claims, settlement)
    asked = plan(route("a"), dropped={"b": Reason.MODALITY})
    refused = await admission.admit(asked, NO_PROMPT, **FIRST)
    assert isinstance(refused, Refused)
    assert refused.reasons == {"a": "circuit_open", "b": "modality"}


async def test_a_settled_claim_is_not_settled_or_abandoned_again() -> None:
    store, claims = MemoryStore(), Claims("r1")
    settlement = Settlement(store, claims, lease_ms=1000)  # type: ignore[arg-type]
    admission = admission_over(store, claims, settlement)
    granted = await admission.admit(
        plan(route("a")), NO_PROMPT, order="draw", request_id="r", attempt=1
    )
    assert isinstance(granted, Claim)
    admission.first_token(granted)
    admission.first_token(granted)
    await admission.fail(granted, Failed())
    admission.succeed(granted)
    admission.abandon(granted)
    await settlement.drain(5)
    assert store.firsts == ["a"]
    assert store.outcomes == [("a", Outcome.FAILURE, 500)]
    assert store.ended == {granted.id: 1}


@pytest.mark.parametrize("order", ["draw", "declared", "pinned"])
@pytest.mark.parametrize("affinity", [True, False])
@pytest.mark.parametrize("caller", ["0123456789abcdef", ""], ids=["known", "unknown"])
async def test_a_failure_unpins_callers_who_are_pinned_by_draws_alone(
    order: str, affinity: bool, caller: str
) -> None:
    store, claims = MemoryStore(), Claims("r1")
    settlement = Settlement(store, claims, lease_ms=1000)  # type: ignore[arg-type]
    admission = admission_over(store, claims, settlement, policy=Policy(affinity=affinity))
    granted = await admission.admit(
        plan(route("a")), Prompt(caller=caller), order=order, request_id="r", attempt=1
    )
    assert isinstance(granted, Claim)
    assert granted.may_unpin == (affinity and bool(caller) and order != "pinned")


async def test_an_abandoned_claim_gives_its_room_back_after_the_grace() -> None:
    # Given a grace, since an engine notices a hang-up late
    store, claims = MemoryStore(), Claims("r1")
    settlement = Settlement(store, claims, lease_ms=1000)  # type: ignore[arg-type]
    admission = admission_over(store, claims, settlement, abort_grace_ms=50)
    granted = await admission.admit(
        plan(route("a")), NO_PROMPT, order="draw", request_id="r", attempt=1
    )
    assert isinstance(granted, Claim)
    # When the attempt is cut off
    began = asyncio.get_running_loop().time()
    admission.abandon(granted)
    # Then it is nobody's to renew from now on, and its room is given back later
    assert not claims.holds(granted)
    await settlement.drain(5)
    assert asyncio.get_running_loop().time() - began >= 0.05
    assert store.outcomes == [("a", Outcome.NEUTRAL, 0)]


async def test_a_draw_that_strikes_out_many_gets_the_rest_of_its_numbers() -> None:
    # Given more candidates than a draw gets numbers for at first, all closed but one
    store, claims = MemoryStore(), Claims("r1")
    settlement = Settlement(store, claims, lease_ms=1000)  # type: ignore[arg-type]
    admission = admission_over(store, claims, settlement)
    asked: list[list[float]] = []
    admit = store.admit

    async def needs_ten(model_id: str, decision: Decision, **values: Any) -> AdmitReply:
        numbers = decision.draws
        asked.append(list(numbers))
        if len(numbers) < 10:
            return admit_reply("short", drawn=len(numbers))
        return await admit(model_id, decision, **values)

    store.admit = needs_ten  # type: ignore[method-assign]
    routes = [route(f"at-{n}") for n in range(12)]
    # When it draws
    granted = await admission.admit(
        plan(*routes), NO_PROMPT, order="draw", request_id="r", attempt=1
    )
    # Then the numbers are those of the request, first the usual few and then all
    assert isinstance(granted, Claim)
    assert asked == [draws("r", 1, USUAL_DRAWS), draws("r", 1, 26)]
