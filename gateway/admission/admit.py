"""Ask for room on an endpoint, and account for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from gateway.admission.claims import Claim, Claims
from gateway.admission.draws import draws
from gateway.admission.settlement import Settlement
from gateway.core.outcome import Outcome
from gateway.core.plan import Plan
from gateway.errors import NoHealthyUpstream, StateUnavailable
from gateway.state.store import AdmitReply, Store

USUAL_DRAWS = 8
"""How many numbers a draw gets at first. More are made only for one that has used these up."""


class Refused(Struct, frozen=True):
    """No candidate may be used now. `retry_after_ms` is 0 when waiting cannot help."""

    reasons: dict[str, str]
    retry_after_ms: int

    def error(self, model: str) -> NoHealthyUpstream:
        """What the client is told: how many endpoints for which reason, and when to come again."""
        counts = ", ".join(
            f"{count} {reason}" for reason, count in sorted(Counter(self.reasons.values()).items())
        )
        return NoHealthyUpstream(
            f"No endpoint of model '{model}' can take the request now ({counts}).",
            retry_after_s=-(-self.retry_after_ms // 1000) or None,
        )


class Admission:
    """Grants claims through `admit`, and passes their end to the settlement."""

    def __init__(
        self, store: Store, claims: Claims, settlement: Settlement, *, lease_ms: int
    ) -> None:
        self._store = store
        self._claims = claims
        self._settlement = settlement
        self._lease_ms = lease_ms

    async def admit(
        self, plan: Plan, *, order: str, request_id: str, attempt: int
    ) -> Claim | Refused:
        """Claim room for an attempt (counted from 1) on one of the plan's candidates.

        `order` is how they are taken: `draw`, `declared` or `pinned`.

        Raises `StateUnavailable`. When the caller goes away meanwhile, whatever was granted is
        given back.
        """
        claim_id = self._claims.next_id()
        count = len(plan.candidates.table) if order == "draw" else 0
        try:
            reply = await self._ask(
                plan, claim_id, order, draws(request_id, attempt, min(count, USUAL_DRAWS))
            )
            if reply.is_short:
                reply = await self._ask(plan, claim_id, order, draws(request_id, attempt, count))
        except asyncio.CancelledError:
            self._settlement.undo(plan.model.id, claim_id)
            raise
        except StateUnavailable as error:
            if error.may_have_happened:
                self._settlement.undo(plan.model.id, claim_id)
            raise
        return self._granted(plan, claim_id, reply)

    async def _ask(
        self, plan: Plan, claim_id: str, order: str, numbers: Sequence[float]
    ) -> AdmitReply:
        return await self._store.admit(
            plan.model.id,
            claim=claim_id,
            candidates=plan.candidates.table,
            tried=tuple(plan.struck),
            order=order,
            draws=numbers,
            lease_ms=self._lease_ms,
        )

    def first_token(self, claim: Claim) -> None:
        """Record the attempt's first output, without waiting."""
        if not claim.first:
            claim.first = True
            self._settlement.first_token(claim)

    async def settle(self, claim: Claim, outcome: Outcome, status: int | None = None) -> None:
        """End a claim and wait until the store knows, unless it is away."""
        await self._settlement.settle(claim, outcome, status or 0)

    def settle_later(self, claim: Claim, outcome: Outcome, status: int | None = None) -> None:
        """End a claim without waiting."""
        self._settlement.settle_later(claim, outcome, status or 0)

    def abandon(self, claim: Claim) -> None:
        """End a claim whose attempt was cut off, if it has not ended, saying nothing of health.

        The room is given back a little later, since an engine notices a hang-up late.
        """
        self._settlement.abandon(claim)

    def _granted(self, plan: Plan, claim_id: str, reply: AdmitReply) -> Claim | Refused:
        if not reply.is_admitted:
            return Refused({**reply.refused(), **plan.reasons()}, reply.retry_after_ms)
        claim = Claim(
            id=claim_id,
            route=plan.candidates.by_location[reply.location],
            is_probe=bool(reply.probe),
            dropped=reply.refused(),
        )
        self._claims.add(claim)
        return claim
