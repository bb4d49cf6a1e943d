"""Draw from pools that accounts give, for claims on routes that have one.

The claim comes first and the pool after it, since models share pools. What a pool refuses costs a
claim its route: it is given back, and another route is looked for.
"""

from __future__ import annotations

from collections import defaultdict

from gateway.admission.claims import UNSENT, Claim, Claims, batches
from gateway.core.reasons import Reason
from gateway.state.supply_store import SupplyStore

_REFUSALS = {
    "unknown": Reason.QUOTA_UNKNOWN,
    "exhausted": Reason.QUOTA_EXHAUSTED,
    "full": Reason.PLACES_TAKEN,
}


class Supplies:
    """What this replica's claims have drawn."""

    def __init__(self, store: SupplyStore, claims: Claims, *, lease_ms: int) -> None:
        self._store = store
        self._claims = claims
        self._lease_ms = lease_ms

    async def take(self, claim: Claim) -> Reason | None:
        """Take what an attempt under the claim needs. Returns why that may not be.

        Raises `StateUnavailable`; then it may have been taken, and the claim's end gives it back.
        """
        supply = claim.route.supply
        if supply is None:
            return None
        try:
            status = await self._store.take(supply, claim=claim.id, lease_ms=self._lease_ms)
        except BaseException:
            claim.has_supply = True  # not before: what is refused must not be renewed
            raise
        claim.has_supply = status == "taken"
        return _REFUSALS.get(status)

    async def release(self, claim: Claim) -> None:
        """Give back what comes back at the end of a claim. Raises `StateUnavailable`."""
        if claim.has_supply and claim.route.supply:
            await self._store.release(
                claim.route.supply, claim=claim.id, unsent=claim.used == UNSENT
            )

    async def renew(self) -> None:
        """Keep the places of all claims. Raises `StateUnavailable`."""
        holders: defaultdict[str, list[Claim]] = defaultdict(list)
        for _, claims in self._claims.by_model():
            for claim in claims:
                supply = claim.route.supply
                if claim.has_supply and supply and supply.kind == "places":
                    holders[supply.pool].append(claim)
        for pool, claims in holders.items():
            for batch in batches(claims):
                lost = await self._store.renew(
                    pool, claims=[claim.id for claim in batch], lease_ms=self._lease_ms
                )
                held = [one.id for one in batch if one.id in lost and self._claims.holds(one)]
                if held:
                    await self._store.renew(
                        pool, claims=held, lease_ms=self._lease_ms, put_back=True
                    )
