"""Ask for room on an endpoint, and account for it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct, structs

from gateway.admission.claims import UNSENT, Claim, Claims
from gateway.admission.cooling import cooling_after_failure, cooling_after_success, outcome_of
from gateway.admission.draws import UNDRAWN, draws
from gateway.admission.outcomes import elapsed_ms, note_cut_off, note_failure, note_success
from gateway.admission.overrides import KnownOverrides
from gateway.admission.profiles import KnownProfiles
from gateway.admission.settlement import Settlement
from gateway.admission.supplies import Supplies
from gateway.core.hedging import Hedge
from gateway.core.outcome import Failure, Outcome
from gateway.core.plan import Plan
from gateway.core.profile import Profile
from gateway.core.prompt import Prompt
from gateway.core.reasons import LIMITING
from gateway.errors import NoHealthyUpstream, StateUnavailable, UpstreamLimited
from gateway.protocols.output_bound import MOST_TOKENS
from gateway.routing.strategies import strategy_of
from gateway.state.decision import Decision
from gateway.state.policy import Policy
from gateway.state.replies import AdmitReply
from gateway.state.store import Store
from gateway.telemetry.tracing import UNTRACED, Trace

NOTHING = "0 0"
"""What `settle` is told that an attempt has used which was answered with an error."""
USUAL_DRAWS = 3
"""How many numbers a draw gets at first. More are made only for one that has used these up."""


class Refused(Struct, frozen=True):
    """No candidate may be used now. `retry_after_ms` is 0 when waiting cannot help."""

    reasons: dict[str, str]
    retry_after_ms: int

    def error(self, model: str) -> NoHealthyUpstream | UpstreamLimited:
        """What the client is told: how many endpoints for which reason, and when to come again.

        One that only time or room keeps away is not down: the client is to slow down.
        """
        counts = ", ".join(
            f"{count} {reason}" for reason, count in sorted(Counter(self.reasons.values()).items())
        )
        text = f"No endpoint of model '{model}' can take the request now ({counts})."
        retry_after_s = -(-self.retry_after_ms // 1000) or None
        if LIMITING.isdisjoint(self.reasons.values()):
            return NoHealthyUpstream(text, retry_after_s=retry_after_s)
        return UpstreamLimited(text, retry_after_s=retry_after_s)


class Stale(Struct, frozen=True):
    """Nothing was decided: an operator has changed the model's overrides since they were read."""


class _Ask(Struct, frozen=True, kw_only=True):
    """What is asked of the store for one attempt."""

    plan: Plan
    prompt: Prompt
    order: str
    """How candidates are taken (`lua/admit.lua`)."""
    request_id: str
    attempt: int
    """Counted from 1."""
    is_again: bool = False
    """Whether the attempt was granted before and could not be made."""


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
        profiles: KnownProfiles,
        supplies: Supplies | None = None,
        lease_ms: int,
        abort_grace_ms: int,
    ) -> None:
        self._store = store
        self._claims = claims
        self._settlement = settlement
        self._policy = policy
        self._lease_ms = lease_ms
        self._abort_grace_s = abort_grace_ms / 1000
        self._profiles = profiles
        self._supplies = supplies
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
            decided = await self._supplied(
                _Ask(plan=plan, prompt=prompt, order=order, request_id=request_id, attempt=attempt)
            )
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

    async def _supplied(self, ask: _Ask) -> Claim | Refused | Stale:
        """Decide, and again without a route whose pool has nothing left for it."""
        while True:
            decided = await self._decide(ask)
            if not isinstance(decided, Claim) or not decided.route.supply or not self._supplies:
                return decided
            try:
                reason = await self._supplies.take(decided)
            except BaseException:
                self.give_back(decided)
                raise
            if reason is None:
                return decided
            self.give_back(decided)
            location = decided.route.location
            if location in ask.plan.drained or ask.order == "pinned":
                return Refused({location: reason}, 0)
            ask.plan.drained[location] = reason
            ask = structs.replace(ask, is_again=True)

    async def _decide(self, ask: _Ask) -> Claim | Refused | Stale:
        plan, prompt, order = ask.plan, ask.prompt, ask.order
        claim_id = self._claims.next_id()
        numbers = [] if order in UNDRAWN else draws(ask.request_id, ask.attempt, USUAL_DRAWS)
        try:
            reply = await self._ask(ask, claim_id, numbers)
            if reply.is_short:
                numbers = draws(ask.request_id, ask.attempt, most_draws(plan))
                reply = await self._ask(ask, claim_id, numbers)
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
        strategy = strategy_of(plan.model)
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
            taken=reply.taken,
            is_probe=bool(reply.probe),
            could_offload=bool(reply.reserve),
            is_only=plan.candidates.in_service == 1,
            sent_s=time.monotonic() if strategy.COMPARES or strategy.IS_CALIBRATED else None,
            outcomes_kept=strategy.outcomes_kept(plan.model),
        )
        self._claims.add(claim)
        return claim

    async def _ask(self, ask: _Ask, claim_id: str, numbers: Sequence[float]) -> AdmitReply:
        decision = decision_for(
            ask.plan,
            ask.prompt,
            self._policy,
            ask.order,
            numbers,
            profile=self._profiles.of(ask.plan.model),
            is_again=ask.is_again,
        )
        return await self._store.admit(
            ask.plan.model.id, decision, claim=claim_id, lease_ms=self._lease_ms
        )

    def hedge(self, plan: Plan, prompt: Prompt, claim: Claim) -> Hedge | None:
        """When to ask another endpoint, too, for the stream that is sent under a claim; or never.

        By what is known now.
        """
        profile = self._profiles.of(plan.model)
        return strategy_of(plan.model).hedge(plan, prompt, profile, claim.route.location)

    def first_token(self, claim: Claim) -> None:
        """Record the attempt's first output, without waiting."""
        if not claim.first:
            claim.first = True
            claim.ttft_ms = elapsed_ms(claim)
            self._settlement.first_token(claim)

    def queued(self, claim: Claim) -> None:
        """The attempt stands in line: it is no load to its endpoint yet."""
        claim.is_queued = True
        if claim.tokens:
            self._settlement.queue(claim)

    def sent(self, claim: Claim) -> None:
        """It has left the line, and is sent now."""
        claim.is_queued = False
        if claim.sent_s is not None:
            claim.sent_s = time.monotonic()
        if claim.tokens:
            self._settlement.queue(claim)

    async def fail(self, claim: Claim, failure: Failure) -> None:
        """End the claim of a failed attempt, and wait until the store knows, unless it is away.

        A failure moves the caller elsewhere; of a wait nothing is remembered.
        """
        if not failure.was_sent:
            claim.used = UNSENT
        else:
            was_worked_on = failure.was_worked_on or claim.first
            claim.used = _used(claim) if was_worked_on else NOTHING
        rules = claim.route.cooldown
        claim.cooling = cooling_after_failure(failure, rules, is_only=claim.is_only)
        claim.noted = note_failure(claim, failure)
        await self._settlement.fail(
            claim, outcome_of(failure, rules), failure.status or 0, unpins=failure.wait is None
        )

    def succeed(self, claim: Claim, status: int | None = None) -> None:
        """End the claim of an attempt that has answered, without waiting."""
        claim.used = _used(claim, is_whole=True)
        claim.cooling = cooling_after_success(claim.route.cooldown)
        claim.noted = note_success(claim)
        self._settlement.settle_later(claim, Outcome.SUCCESS, status or 0)

    def give_back(self, claim: Claim) -> None:
        """End a claim under which nothing was sent."""
        claim.used = UNSENT
        self._settlement.settle_later(claim, Outcome.NEUTRAL, 0)

    def abandon(self, claim: Claim) -> None:
        """End a claim whose attempt was cut off, if it has not ended, saying nothing of health.

        The room is given back a little later, since an engine notices a hang-up late.
        """
        if self._claims.holds(claim):  # else its settlement may still be under way
            claim.used = _used(claim)
            if claim.is_queued:
                claim.used = UNSENT
            claim.noted = note_cut_off(claim)
            self._settlement.abandon(claim, self._abort_grace_s)


def _used(claim: Claim, *, is_whole: bool = False) -> str:
    """What an attempt has used of its endpoint's limits: as its upstream said, else our estimate.

    Never nothing: some of the prompt has been worked on, whatever became of it. Unless its answer
    `is_whole`, no less than came: what was said of a stream may be old by then. Where an answer
    that was to come in one piece has not come, all stays taken: how much was made, nobody knows.
    """
    if not claim.taken:
        return ""
    told = claim.usage
    if told and told.total:
        came = 0 if is_whole else claim.output_tokens or 0
        output = max(told.completion_tokens, came)
        return f"{min(told.prompt_tokens, MOST_TOKENS)} {min(output, MOST_TOKENS)}"
    if claim.output_tokens is None:
        return ""
    return f"{claim.prompt.tokens} {claim.output_tokens}"


def most_draws(plan: Plan) -> int:
    """How many numbers an attempt's draw can use up (`lua/admit.lua`)."""
    return 2 * len(plan.candidates.table) + 2


def decision_for(
    plan: Plan,
    prompt: Prompt,
    policy: Policy,
    order: str,
    numbers: Sequence[float],
    *,
    profile: Profile,
    is_again: bool = False,
) -> Decision:
    """Put an attempt's question to the store."""
    strategy = strategy_of(plan.model)
    return Decision(
        policy=policy,
        epoch=plan.candidates.epoch,
        candidates=plan.candidates.table,
        reserve=plan.candidates.reserve,
        limited=plan.candidates.limited,
        tried=tuple(plan.struck),
        is_failover=plan.is_failover,
        is_again=is_again,
        order=order,
        draws=numbers,
        prompt=prompt,
        prefill_rate=strategy.prefill_rate(plan.model),
        offers=strategy.offers(plan, prompt, profile),
    )
