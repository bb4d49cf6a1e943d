"""The way of one chat request, from the parsed body to the last byte.

    resolve -> plan -> reserve -> [ admit -> send and relay -> settle ]* -> answer -> settle

The loop in brackets is failover: it goes on until an attempt has answered, an attempt has failed
after output reached the client, or no candidate is left. What the caller is limited in is reserved
with the first attempt, and settled by what all of them have used. The first of a stream may be two
attempts at a time (`hedge.py`).
"""

from __future__ import annotations

import asyncio

from gateway.admission.admit import Admission, Refused, Stale
from gateway.admission.callers import CallerLimits
from gateway.admission.claims import Claim
from gateway.admission.offloads import Offloads
from gateway.admission.reservations import Reservation
from gateway.attempts import Attempts
from gateway.config.result import Config
from gateway.core.plan import Plan
from gateway.core.prompt import Prompt
from gateway.dispatch.send import Dispatcher
from gateway.errors import InvalidRequest, StateUnavailable
from gateway.exchange import Exchange
from gateway.hedge import Hedging
from gateway.resolve import resolve
from gateway.routing import failover
from gateway.routing.candidates import Planner
from gateway.routing.prompts import Prompts
from gateway.routing.strategies import strategy_of

RESERVE = "reserve"
"""The order (`lua/admit.lua`) in which the offload route is asked for alone."""
MOST_REREADS = 3
"""How often an attempt may find that an operator has just changed the overrides again."""


class Pipeline:
    """Serves chat requests under one configuration; holds no state between requests."""

    def __init__(
        self,
        config: Config,
        planner: Planner,
        prompts: Prompts,
        admission: Admission,
        dispatcher: Dispatcher,
        *,
        callers: CallerLimits,
        offloads: Offloads,
    ) -> None:
        self._config = config
        self._planner = planner
        self._prompts = prompts
        self._admission = admission
        self._attempts = Attempts(prompts, admission, dispatcher)
        self._hedging = Hedging(admission, self._attempts)
        self._callers = callers
        self._offloads = offloads

    async def chat(self, exchange: Exchange) -> None:
        """Answer a request. Raises `GatewayError` for what the client must be told instead."""
        chat, record = exchange.chat, exchange.record
        model = resolve(
            chat.model, exchange.caller, names=self._config.names, models=self._config.models
        )
        record.model, record.config_digest = model.id, self._config.digest
        if model.model_type != "chat":
            raise InvalidRequest(f"Model '{chat.model}' is not a chat model.", param="model")
        overrides = self._admission.overrides.of(model)
        prompt = self._prompts.of(chat, exchange.caller, exchange.session_id, model)
        plan = self._planner.plan(model, chat, overrides, exchange.pin, tokens=prompt.tokens)
        exchange.reservation = self._callers.reservation(exchange.caller, model, chat, prompt)
        try:
            await self._serve(exchange, plan, prompt)
        finally:
            if exchange.reservation:
                self._callers.settle(exchange.reservation, exchange.used())
            self._offloads.note(record)

    async def _serve(self, exchange: Exchange, plan: Plan, prompt: Prompt) -> None:
        """Go from attempt to attempt until one has answered."""
        chat, record = exchange.chat, exchange.record
        while claim := await self._next(exchange, plan, prompt):
            try:
                if await self._hedging.make(exchange, plan, prompt, claim):
                    return None
            finally:
                # Only an attempt that was cut off still has its claim: the others have settled it.
                self._admission.abandon(claim)
        if exchange.empty_answer is not None:
            record.endpoint = exchange.empty_answer.endpoint
            return await self._attempts.relay.answer(exchange, exchange.empty_answer.data)
        # Of an endpoint that was tried again, after a wait, the last failure counts.
        last = {failure.endpoint: failure for failure in exchange.failures}
        surfaced = failover.surfaced(list(last.values()))
        record.endpoint = surfaced.endpoint
        raise surfaced.to_client(chat.model)

    async def _next(self, exchange: Exchange, plan: Plan, prompt: Prompt) -> Claim | None:
        """Claim room for the next attempt; `None` when no candidate is left to try.

        A request that has waited in vain goes to the offload route; one that this has cut short
        goes back at the end. Raises what the client is told that gets no attempt at all.
        """
        record, walk, order = exchange.record, exchange.offload, strategy_of(plan.model).order
        attempt = len(record.attempts) + 1
        if walk.due and plan.has_reserve:
            claim = await self._admit(exchange, plan, prompt, attempt, RESERVE)
            if isinstance(claim, Claim):
                return claim
        if walk.due:
            walk.refused()
        if not (exchange.failures and plan.is_exhausted):
            if attempt == 1 and exchange.reservation:
                claim = await self._enter(exchange, plan, prompt, exchange.reservation)
            else:
                claim = await self._admit(exchange, plan, prompt, attempt, order(plan, attempt))
            if isinstance(claim, Claim):
                return claim
            record.refused = claim.reasons
            if not exchange.failures:
                raise plan.refusal or claim.error(exchange.chat.model)
        if cut := walk.go_back():
            plan.unstrike(cut)
            claim = await self._admit(exchange, plan, prompt, attempt, order(plan, attempt))
            if isinstance(claim, Claim):
                return claim
        return None

    async def _enter(
        self, exchange: Exchange, plan: Plan, prompt: Prompt, reservation: Reservation
    ) -> Claim | Refused:
        """Reserve, and claim room for the first attempt: both or neither.

        While the caller's last request has left room, both leave in one flush; else limits first.
        """
        claim: Claim | Refused | None = None
        order = strategy_of(plan.model).order(plan, 1)
        try:
            if not self._callers.fits_probably(reservation):
                await self._callers.reserve(reservation)
                return await self._admit(exchange, plan, prompt, 1, order)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._callers.reserve(reservation))
                claim = await self._admit(exchange, plan, prompt, 1, order)
            return claim
        except BaseException as failure:
            if isinstance(claim, Claim):
                self._admission.give_back(claim)
            if isinstance(failure, BaseExceptionGroup):
                raise failure.exceptions[0] from None
            raise
        finally:
            record = exchange.record
            record.room, record.limited_by = reservation.room, reservation.limited_by

    async def _admit(
        self, exchange: Exchange, plan: Plan, prompt: Prompt, attempt: int, order: str
    ) -> Claim | Refused:
        """Claim room for an attempt, planning anew where an operator has changed the weights."""
        for _ in range(MOST_REREADS):
            claim = await self._admission.admit(
                plan,
                prompt,
                order=order,
                request_id=exchange.record.request_id,
                attempt=attempt,
                trace=exchange.trace,
            )
            if not isinstance(claim, Stale):
                return claim
            overrides = await self._admission.overrides.read(plan.model)
            self._planner.follow(plan, exchange.chat, overrides, tokens=prompt.tokens)
        raise StateUnavailable
