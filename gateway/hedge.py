"""Ask a second endpoint for a stream that has no output when it should have.

When, and which, the model's strategy says beforehand (`core/hedging.py`). The second attempt is
admitted as any, and counts as failover. Whatever keeps it away, the first goes on as it was.
"""

from __future__ import annotations

import asyncio
import time

from gateway.admission.admit import Admission
from gateway.admission.claims import Claim
from gateway.attempts import Attempts
from gateway.core.hedging import Hedge
from gateway.core.plan import Candidates, Plan
from gateway.core.prompt import Prompt
from gateway.core.reasons import Reason
from gateway.errors import StateUnavailable
from gateway.exchange import Exchange
from gateway.race import Race


class Hedging:
    """Makes attempts, some of them two at a time."""

    def __init__(self, admission: Admission, attempts: Attempts) -> None:
        self._admission = admission
        self._attempts = attempts

    async def make(self, exchange: Exchange, plan: Plan, prompt: Prompt, claim: Claim) -> bool:
        """Make an attempt, beside which there may be another, as `Attempts.make` does."""
        hedge = None
        if exchange.chat.stream and not exchange.record.attempts:
            hedge = self._admission.hedge(plan, prompt, claim)
        if hedge is None:
            return await self._attempts.make(exchange, plan, claim)
        race = Race()
        return await race.run(
            self._leg(exchange, plan, claim, race),
            self._second(exchange, plan, prompt, claim, hedge=hedge, race=race),
        )

    async def _leg(
        self, exchange: Exchange, plan: Plan, claim: Claim, race: Race, *, is_hedge: bool = False
    ) -> bool:
        """One of the two. Cut off, it gives its room back at once: the other may go on for long."""
        try:
            return await self._attempts.make(exchange, plan, claim, race, is_hedge=is_hedge)
        finally:
            self._admission.abandon(claim)

    async def _second(
        self,
        exchange: Exchange,
        plan: Plan,
        prompt: Prompt,
        first: Claim,
        *,
        hedge: Hedge,
        race: Race,
    ) -> bool:
        await _until_waited(first, hedge.after_ms / 1000)
        try:
            claim = await self._admit(exchange, plan, prompt, first, hedge)
        except StateUnavailable:
            return False
        if claim is None:
            return False
        race.join()
        return await self._leg(exchange, plan, claim, race, is_hedge=True)

    async def _admit(
        self, exchange: Exchange, plan: Plan, prompt: Prompt, first: Claim, hedge: Hedge
    ) -> Claim | None:
        """Claim room on one of those that are good enough, if that may be.

        Nothing is planned anew where an operator has changed the overrides meanwhile.
        """
        for location in hedge.locations:
            claim = await self._admission.admit(
                _plan_between(plan, first, location),
                prompt,
                order="declared",
                request_id=exchange.record.request_id,
                attempt=len(exchange.record.attempts) + 1,
                trace=exchange.trace,
            )
            if isinstance(claim, Claim):
                return claim
        return None


def _plan_between(plan: Plan, first: Claim, location: str) -> Plan:
    """The choice between where the request is already, which is out of it, and one other."""
    kept = [
        (plan.candidates.by_location[at], weight)
        for at, weight in plan.candidates.table
        if at in (first.route.location, location)
    ]
    candidates = Candidates.of(
        plan.candidates.epoch, kept, {}, in_service=plan.candidates.in_service
    )
    between = Plan(
        model=plan.model, candidates=candidates, overrides=plan.overrides, is_failover=True
    )
    between.strike(first.route, Reason.ALREADY_ATTEMPTED)
    return between


async def _until_waited(claim: Claim, wait_s: float) -> None:
    """Until an attempt has waited for so long since it was sent. In line at a gate it is not."""
    while True:
        sent_s = None if claim.is_queued else claim.sent_s
        left_s = wait_s if sent_s is None else sent_s + wait_s - time.monotonic()
        if left_s <= 0:
            return
        await asyncio.sleep(left_s)
