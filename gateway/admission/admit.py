"""Ask for room on an endpoint, and account for it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from gateway.admission.claims import Claim, Claims
from gateway.admission.draws import UNDRAWN, draws
from gateway.admission.overrides import KnownOverrides
from gateway.admission.settlement import Settlement
from gateway.core.outcome import Outcome
from gateway.core.plan import Plan
from gateway.core.prompt import Prompt
from gateway.errors import NoHealthyUpstream, StateUnavailable
from gateway.routing.strategies import strategy_of
from gateway.state.policy import Policy
from gateway.state.replies import AdmitReply
from gateway.state.store import Decision, Store
from gateway.telemetry.tracing import UNTRACED, Trace

USUAL_DRAWS = 3
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


class Stale(Struct, frozen=True):
    """Nothing was decided: an operator has changed the model's overrides since they were read."""


class Admission:
    """Grants claims through `admit` under one policy, and passes their end to the settlement."""

    def __init__(
        self,
        store: Store,
        claims: Claims,
        settlement: Settlement,
        overrides: KnownOverrides,
        policy: Policy,
        *,
        lease_ms: int,
        abort_grace_ms: int,
    ) -> None:
        self._store = store
        self._claims = claims
        self._settlement = settlement
        self._policy = policy
        self._lease_ms = lease_ms
        self._abort_grace_s = abort_grace_ms / 1000
        self.overrides = overrides

    async def admit(
        self,
        plan: Plan,
        prompt: Prompt,
        *,
        order: str,
        request_id: str,
        attempt: int,
        trace: Trace = UNTRACED,
    ) -> Claim | Refused | Stale:
        """Claim room for an attempt (counted from 1) on one of the plan's candidates.

        `order` is how they are taken (`lua/admit.lua`).

        Raises `StateUnavailable`. When the caller goes away meanwhile, whatever was granted is
        given back.
        """
        with trace.admitting(plan.model.id, attempt, order, plan.candidates.table) as step:
            decided = await self._decide(plan, prompt, order, request_id, attempt)
            if isinstance(decided, Claim):
                decided.trace = trace
                step.admitted(
                    decided.route, decided.draws, is_probe=decided.is_probe, pin=decided.pin
                )
                step.dropped(decided.dropped, plan.struck, plan.candidates.dropped)
            elif isinstance(decided, Refused):
                step.dropped(decided.reasons)
            else:
                step.stale()
            return decided

    async def _decide(
        self, plan: Plan, prompt: Prompt, order: str, request_id: str, attempt: int
    ) -> Claim | Refused | Stale:
        claim_id = self._claims.next_id()
        numbers = [] if order in UNDRAWN else draws(request_id, attempt, USUAL_DRAWS)
        try:
            reply = await self._ask(plan, prompt, claim_id, order, numbers)
            if reply.is_short:
                numbers = draws(request_id, attempt, most_draws(plan))
                reply = await self._ask(plan, prompt, claim_id, order, numbers)
        except asyncio.CancelledError:
            self._settlement.undo(plan.model.id, claim_id, self._policy)
            raise
        except StateUnavailable as error:
            if error.may_have_happened:
                self._settlement.undo(plan.model.id, claim_id, self._policy)
            raise
        if reply.is_stale:
            return Stale()
        if not reply.is_admitted:
            return Refused({**reply.passed_over(), **plan.reasons()}, reply.retry_after_ms)
        claim = Claim(
            id=claim_id,
            route=plan.candidates.by_location[reply.location],
            policy=self._policy,
            prompt=prompt,
            dropped=reply.passed_over(),
            draws=numbers[: reply.drawn],
            pin=reply.pin,
            may_unpin=self._policy.affinity and bool(prompt.caller) and order != "pinned",
            tokens=reply.tokens,
            is_elephant=bool(reply.elephant),
            cached_tokens=reply.cached_tokens,
            anchor=reply.anchor,
            is_probe=bool(reply.probe),
            sent_s=time.monotonic() if strategy_of(plan.model).COMPARES else None,
        )
        self._claims.add(claim)
        return claim

    async def _ask(
        self, plan: Plan, prompt: Prompt, claim_id: str, order: str, numbers: Sequence[float]
    ) -> AdmitReply:
        decision = decision_for(plan, prompt, self._policy, order, numbers)
        return await self._store.admit(
            plan.model.id, decision, claim=claim_id, lease_ms=self._lease_ms
        )

    def first_token(self, claim: Claim) -> None:
        """Record the attempt's first output, without waiting."""
        if not claim.first:
            claim.first = True
            if claim.sent_s is not None:
                claim.ttft_ms = max(round((time.monotonic() - claim.sent_s) * 1000), 1)
            self._settlement.first_token(claim)

    async def fail(self, claim: Claim, outcome: Outcome, status: int | None = None) -> None:
        """End the claim of a failed attempt, and wait until the store knows, unless it is away."""
        await self._settlement.fail(claim, outcome, status or 0)

    def succeed(self, claim: Claim, status: int | None = None) -> None:
        """End the claim of an attempt that has answered, without waiting."""
        self._settlement.settle_later(claim, Outcome.SUCCESS, status or 0)

    def give_back(self, claim: Claim) -> None:
        """End a claim under which nothing was sent."""
        self._settlement.settle_later(claim, Outcome.NEUTRAL, 0)

    def abandon(self, claim: Claim) -> None:
        """End a claim whose attempt was cut off, if it has not ended, saying nothing of health.

        The room is given back a little later, since an engine notices a hang-up late.
        """
        self._settlement.abandon(claim, self._abort_grace_s)


def most_draws(plan: Plan) -> int:
    """How many numbers an attempt's draw can use up (`lua/admit.lua`)."""
    return 2 * len(plan.candidates.table) + 2


def decision_for(
    plan: Plan, prompt: Prompt, policy: Policy, order: str, numbers: Sequence[float]
) -> Decision:
    """Put an attempt's question to the store."""
    return Decision(
        policy=policy,
        epoch=plan.candidates.epoch,
        candidates=plan.candidates.table,
        tried=tuple(plan.struck),
        order=order,
        draws=numbers,
        prompt=prompt,
        uses_pin=policy.affinity and bool(prompt.caller) and order == "draw",
        prefill_rate=strategy_of(plan.model).prefill_rate(plan.model),
    )
