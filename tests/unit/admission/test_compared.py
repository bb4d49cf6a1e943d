"""What is asked and told for a model whose endpoints are compared."""

from __future__ import annotations

import pytest

from gateway.admission.admit import USUAL_DRAWS, Admission
from gateway.admission.claims import Claim, Claims
from gateway.admission.draws import draws
from gateway.admission.settlement import Settlement
from gateway.config.strategies import ExpectedTtftParams, FixedParams
from gateway.core.plan import Candidates, Plan
from gateway.core.prompt import Prompt
from gateway.core.route import Model
from tests.fakes.builders import model, route
from tests.fakes.rig import admission_over
from tests.fakes.store import MemoryStore

PROMPT = Prompt(caller="0123456789abcdef", tokens=100)
COMPARED = model(
    route(), router="expected_ttft", router_params=ExpectedTtftParams(prefill_tokens_per_s=700)
)
FIXED = model(route(), router_params=FixedParams())


class Replica:
    """An admission over a store in memory."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        claims = Claims("r1")
        self.settlement = Settlement(self.store, claims, lease_ms=1000)  # type: ignore[arg-type]
        self.admission: Admission = admission_over(self.store, claims, self.settlement)

    async def admit(self, of: Model, order: str) -> Claim:
        candidates = Candidates.of(0, [(one, 1.0) for one in of.routes], {})
        claim = await self.admission.admit(
            Plan(model=of, candidates=candidates), PROMPT, order=order, request_id="id", attempt=2
        )
        assert isinstance(claim, Claim)
        return claim


@pytest.fixture
def replica() -> Replica:
    return Replica()


async def test_near_ties_get_the_numbers_of_the_request(replica: Replica) -> None:
    claim = await replica.admit(COMPARED, "expected_ttft")

    (decision,) = replica.store.decisions
    assert decision.draws == draws("id", 2, USUAL_DRAWS)
    assert claim.draws == draws("id", 2, 1)


async def test_the_store_is_told_what_rate_to_reckon_with(replica: Replica) -> None:
    await replica.admit(COMPARED, "expected_ttft")
    await replica.admit(FIXED, "draw")

    assert [decision.prefill_rate for decision in replica.store.decisions] == [700, 0]


async def test_the_time_to_the_first_output_is_told_where_something_is_learned_from_it(
    replica: Replica,
) -> None:
    for of, order in ((COMPARED, "expected_ttft"), (COMPARED, "pinned"), (FIXED, "draw")):
        claim = await replica.admit(of, order)
        if claim.sent_s is not None:
            claim.sent_s -= 5.0
        replica.admission.first_token(claim)
        await replica.settlement.drain(1)

    compared, pinned, fixed = replica.store.ttfts_ms
    assert compared >= 5_000
    assert pinned >= 5_000
    assert fixed == 0
