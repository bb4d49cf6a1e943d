"""Claims on routes with a pool: the claim first, the pool after it, another route if need be."""

from __future__ import annotations

import asyncio

import pytest

from gateway.admission.admit import Admission, Refused
from gateway.admission.claims import Claim, Claims
from gateway.admission.overrides import KnownOverrides
from gateway.admission.profiles import KnownProfiles
from gateway.admission.settlement import Settlement
from gateway.admission.supplies import Supplies
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.outcome import Outcome
from gateway.core.plan import Candidates, Plan
from gateway.core.prompt import NO_PROMPT
from gateway.core.reasons import Reason
from gateway.core.supply import Supply
from gateway.errors import StateUnavailable
from gateway.state.policy import Policy
from tests.fakes.builders import model, route
from tests.fakes.failure import Failed
from tests.fakes.store import MemoryStore

PLACES = Supply(kind="places", pool="team", limit=1)


class MemorySupplies:
    """Gives as the test says."""

    def __init__(self) -> None:
        self.answers: list[str | Exception] = []
        """Of the next calls; after that there is enough."""
        self.taken: list[str] = []
        self.released: list[tuple[str, bool]] = []
        self.renewed: list[tuple[str, list[str]]] = []
        self.lost: list[str] = []
        self.put_back: list[tuple[str, list[str]]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def take(self, supply: Supply, *, claim: str, lease_ms: int) -> str:
        await self.may_answer.wait()
        answer = self.answers.pop(0) if self.answers else "taken"
        if isinstance(answer, Exception):
            raise answer
        if answer == "taken":
            self.taken.append(claim)
        return answer

    async def release(self, supply: Supply, *, claim: str, unsent: bool) -> None:
        self.released.append((claim, unsent))

    async def renew(
        self, pool: str, *, claims: list[str], lease_ms: int, put_back: bool = False
    ) -> list[str]:
        (self.put_back if put_back else self.renewed).append((pool, claims))
        return [] if put_back else [claim for claim in claims if claim in self.lost]


class OfferingStore(MemoryStore):
    """Grants only what is offered, as `admit` does."""

    async def admit(self, model_id, decision, *, claim, lease_ms):
        reasons = {at: one.reason for at, one in decision.offers.each.items() if one.reason}
        self.closed = reasons
        return await super().admit(model_id, decision, claim=claim, lease_ms=lease_ms)


class Replica:
    def __init__(self) -> None:
        self.pools = MemorySupplies()
        self.store = OfferingStore()
        self.claims = Claims("r1")
        self.supplies = Supplies(self.pools, self.claims, lease_ms=1000)  # type: ignore[arg-type]
        self.settlement = Settlement(
            self.store,  # type: ignore[arg-type]
            self.claims,
            self.supplies,
            lease_ms=1000,
        )
        self.admission = Admission(
            self.store,  # type: ignore[arg-type]
            self.claims,
            self.settlement,
            KnownOverrides(self.store),  # type: ignore[arg-type]
            Policy(),
            profiles=KnownProfiles(self.store, lambda: ()),  # type: ignore[arg-type]
            supplies=self.supplies,
            lease_ms=1000,
            abort_grace_ms=0,
        )
        routes = route("plan", supply=PLACES), route("paid")
        of = model(*routes, router="routewise", router_params=RoutewiseParams())
        candidates = Candidates.of(0, [(one, 1.0) for one in routes], {})
        self.plan = Plan(model=of, candidates=candidates)

    async def admit(self, order: str = "routewise") -> Claim | Refused:
        decided = await self.admission.admit(
            self.plan, NO_PROMPT, order=order, request_id="r", attempt=1
        )
        assert isinstance(decided, Claim | Refused)
        return decided

    async def settled(self) -> None:
        await self.settlement.drain(5)


@pytest.fixture
def replica() -> Replica:
    return Replica()


async def test_a_claim_draws_from_the_pool_of_its_route_and_gives_back_in_the_end(
    replica: Replica,
) -> None:
    claim = await replica.admit()
    assert isinstance(claim, Claim)
    assert (claim.route.location, replica.pools.taken) == ("plan", [claim.id])

    replica.admission.succeed(claim)
    await replica.settled()
    assert replica.pools.released == [(claim.id, False)]


@pytest.mark.parametrize("struck", [[], ["other"]], ids=["first", "failover"])
async def test_an_attempt_whose_pool_had_nothing_left_is_in_the_budget_of_failover_once(
    replica: Replica, struck: list[str]
) -> None:
    replica.plan.struck = dict.fromkeys(struck, Reason.ALREADY_ATTEMPTED)
    replica.plan.is_failover = bool(struck)
    replica.pools.answers = ["full"]
    await replica.admit()

    told = [one.args()["tried"] for one in replica.store.decisions]
    assert told == [" ".join(struck), " ".join(["~", *struck])]
    # And what comes after a failure is counted as ever
    replica.plan.strike(replica.plan.model.routes[1], Reason.ALREADY_ATTEMPTED)
    replica.plan.is_failover = True
    await replica.admit()
    assert "~" not in replica.store.decisions[-1].args()["tried"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("full", Reason.PLACES_TAKEN),
        ("exhausted", Reason.QUOTA_EXHAUSTED),
        ("unknown", Reason.QUOTA_UNKNOWN),
    ],
)
async def test_a_pool_with_nothing_left_leads_to_another_route_without_blame(
    replica: Replica, said: str, reason: Reason
) -> None:
    replica.pools.answers = [said]
    claim = await replica.admit()
    await replica.settled()

    assert isinstance(claim, Claim)
    assert (claim.route.location, claim.dropped) == ("paid", {"plan": reason})
    assert replica.store.outcomes == [("plan", Outcome.NEUTRAL, 0)]
    assert [decision.tried for decision in replica.store.decisions] == [(), ()]
    assert replica.plan.struck == {}
    assert replica.pools.released == []


async def test_the_route_stays_out_for_the_rest_of_the_request(replica: Replica) -> None:
    replica.pools.answers = ["full"]
    first = await replica.admit()
    again = await replica.admit()

    assert isinstance(first, Claim)
    assert isinstance(again, Claim)
    assert again.route.location == "paid"
    assert replica.pools.taken == []


async def test_an_operators_request_for_that_route_alone_is_refused(replica: Replica) -> None:
    replica.pools.answers = ["full"] * 3
    refused = await replica.admit("pinned")
    await replica.settled()

    assert refused == Refused({"plan": Reason.PLACES_TAKEN}, 0)
    assert not replica.store.standing


async def test_a_pool_that_cannot_be_asked_costs_no_claim(replica: Replica) -> None:
    replica.pools.answers = [StateUnavailable()]
    with pytest.raises(StateUnavailable):
        await replica.admit()
    await replica.settled()

    assert not replica.store.standing
    assert replica.pools.released == [("r1.1", True)]


@pytest.mark.parametrize(("was_sent", "unsent"), [(True, False), (False, True)])
async def test_a_failure_gives_back_of_a_quota_only_what_was_not_sent(
    replica: Replica, was_sent: bool, unsent: bool
) -> None:
    claim = await replica.admit()
    assert isinstance(claim, Claim)
    await replica.admission.fail(claim, Failed(was_sent=was_sent))

    assert replica.pools.released == [(claim.id, unsent)]


async def test_places_are_renewed_while_claims_hold_them(replica: Replica) -> None:
    held, ended = await replica.admit(), await replica.admit()
    assert isinstance(held, Claim)
    assert isinstance(ended, Claim)
    replica.admission.succeed(ended)
    await replica.supplies.renew()

    assert replica.pools.renewed == [("team", [held.id])]


async def test_a_place_that_was_lost_is_put_back(replica: Replica) -> None:
    held = await replica.admit()
    assert isinstance(held, Claim)
    await replica.supplies.renew()
    before = list(replica.pools.put_back)
    replica.pools.lost = [held.id]
    await replica.supplies.renew()

    assert (before, replica.pools.put_back) == ([], [("team", [held.id])])


async def test_a_place_that_is_only_asked_for_is_not_renewed(replica: Replica) -> None:
    replica.pools.may_answer.clear()
    asked = asyncio.create_task(replica.admit())
    await asyncio.sleep(0.01)
    assert len(replica.claims) == 1
    await replica.supplies.renew()
    replica.pools.answers = ["full"]
    replica.pools.may_answer.set()
    await asked

    assert replica.pools.renewed == []


async def test_one_who_leaves_while_it_is_asked_for_gives_it_back(replica: Replica) -> None:
    replica.pools.may_answer.clear()
    asked = asyncio.create_task(replica.admit())
    await asyncio.sleep(0.01)
    asked.cancel()
    await asyncio.wait({asked})
    await replica.settled()

    assert replica.pools.released == [("r1.1", True)]
    assert not replica.store.standing
