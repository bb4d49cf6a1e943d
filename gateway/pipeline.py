"""The way of one chat request, from the parsed body to the last byte.

    resolve -> plan -> reserve -> [ admit -> send and relay -> settle ]* -> answer -> settle

The loop in brackets is failover: it goes on until an attempt has answered, an attempt has failed
after output reached the client, or no candidate is left. What the caller is limited in is reserved
with the first attempt, and settled by what all of them have used.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from gateway.admission.admit import Admission, Refused, Stale
from gateway.admission.callers import CallerLimits, Used
from gateway.admission.claims import Claim
from gateway.admission.reservations import Reservation
from gateway.config.result import Config
from gateway.core.caller import Caller
from gateway.core.plan import Plan
from gateway.core.prompt import Prompt
from gateway.core.reply import EmptyAnswer, Reply
from gateway.core.request import ChatRequest
from gateway.dispatch.classify import Kind, UpstreamFailure
from gateway.dispatch.send import Dispatcher
from gateway.errors import InvalidRequest, StateUnavailable
from gateway.protocols.token_estimate import BYTES_PER_TOKEN
from gateway.resolve import resolve
from gateway.routing import failover
from gateway.routing.candidates import Planner
from gateway.routing.prompts import Prompts
from gateway.routing.strategies import strategy_of
from gateway.telemetry.access import AttemptRecord, RequestRecord
from gateway.telemetry.logs import event
from gateway.telemetry.tracing import UNTRACED, Trace

DONE = b"data: [DONE]\n\n"
MOST_REREADS = 3
"""How often an attempt may find that an operator has just changed the overrides again."""


class Exchange(Struct, kw_only=True):
    """One request on its way: what was asked, where the answer goes, what has happened so far."""

    chat: ChatRequest
    caller: Caller
    reply: Reply
    record: RequestRecord
    pin: str | None = None
    session_id: str | None = None
    """What the client calls its conversation, if it says."""
    trace: Trace = UNTRACED
    failures: list[UpstreamFailure] = field(default_factory=list)
    empty_answer: EmptyAnswer | None = None
    reservation: Reservation | None = None
    """Of a caller with limits."""
    output_tokens: int = 0
    """Events with which output has come, about a token each."""


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
    ) -> None:
        self._config = config
        self._planner = planner
        self._prompts = prompts
        self._admission = admission
        self._dispatcher = dispatcher
        self._callers = callers

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
        plan = self._planner.plan(model, chat, overrides, exchange.pin)
        prompt = self._prompts.of(chat, exchange.caller, exchange.session_id, model)
        exchange.reservation = self._callers.reservation(exchange.caller, model, chat, prompt)
        try:
            await self._serve(exchange, plan, prompt)
        finally:
            if exchange.reservation:
                self._callers.settle(exchange.reservation, _used(exchange))

    async def _serve(self, exchange: Exchange, plan: Plan, prompt: Prompt) -> None:
        """Go from attempt to attempt until one has answered."""
        chat, record = exchange.chat, exchange.record
        attempt = 0
        while not (exchange.failures and plan.is_exhausted):
            attempt += 1
            if attempt == 1 and exchange.reservation:
                claim = await self._enter(exchange, plan, prompt, exchange.reservation)
            else:
                claim = await self._admit(exchange, plan, prompt, attempt)
            if isinstance(claim, Refused):
                record.refused = claim.reasons
                if exchange.failures:
                    break
                raise plan.refusal or claim.error(chat.model)
            try:
                return await self._attempt(exchange, plan, claim)
            except UpstreamFailure as failure:
                await self._admission.fail(claim, failure.outcome, failure.status)
                self._note_failure(exchange, plan, claim, failure)
                if claim.first:  # output has reached the client: no other endpoint may go on
                    raise failure.to_client(chat.model) from failure
            finally:
                # Only an attempt that was cut off still has its claim: the others have settled it.
                self._admission.abandon(claim)
        if exchange.empty_answer is not None:
            record.endpoint = exchange.empty_answer.endpoint
            return await self._answer(exchange, exchange.empty_answer.data)
        surfaced = failover.surfaced(exchange.failures)
        record.endpoint = surfaced.endpoint
        raise surfaced.to_client(chat.model)

    async def _enter(
        self, exchange: Exchange, plan: Plan, prompt: Prompt, reservation: Reservation
    ) -> Claim | Refused:
        """Reserve, and claim room for the first attempt: both or neither.

        While the caller's last request has left room, both leave in one flush; else limits first.
        """
        claim: Claim | Refused | None = None
        try:
            if not self._callers.fits_probably(reservation):
                await self._callers.reserve(reservation)
                return await self._admit(exchange, plan, prompt, 1)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._callers.reserve(reservation))
                claim = await self._admit(exchange, plan, prompt, 1)
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
        self, exchange: Exchange, plan: Plan, prompt: Prompt, attempt: int
    ) -> Claim | Refused:
        """Claim room for an attempt, planning anew where an operator has changed the weights."""
        for _ in range(MOST_REREADS):
            claim = await self._admission.admit(
                plan,
                prompt,
                order=strategy_of(plan.model).order(plan, attempt),
                request_id=exchange.record.request_id,
                attempt=attempt,
                trace=exchange.trace,
            )
            if not isinstance(claim, Stale):
                return claim
            overrides = await self._admission.overrides.read(plan.model)
            self._planner.follow(plan, exchange.chat, overrides)
        raise StateUnavailable

    async def _attempt(self, exchange: Exchange, plan: Plan, claim: Claim) -> None:
        record = exchange.record
        record.endpoint = claim.route.endpoint
        record.attempts.append(
            AttemptRecord(
                endpoint=claim.route.endpoint,
                probe=claim.is_probe,
                dropped=claim.dropped,
                pin=claim.pin,
            )
        )
        if record.overhead_ms is None:
            record.overhead_ms = record.elapsed_ms()
        priority = self._prompts.priority(exchange.chat, claim)
        with exchange.trace.attempting(claim.route, record):
            if exchange.chat.stream:
                await self._stream(exchange, plan, claim, priority)
            else:
                await self._complete(exchange, claim, priority)
        record.attempts[-1].status = 200

    async def _complete(self, exchange: Exchange, claim: Claim, priority: int | None) -> None:
        """Send a request whose answer comes whole."""
        record = exchange.record
        try:
            answer = await self._dispatcher.complete(
                claim.route,
                exchange.chat,
                request_id=record.request_id,
                priority=priority,
                trace=exchange.trace,
            )
        except UpstreamFailure as failure:
            if failure.completion is not None:
                exchange.empty_answer = EmptyAnswer(failure.endpoint, failure.completion.body)
            raise
        self._admission.succeed(claim, 200)
        record.usage = answer.usage
        exchange.output_tokens = len(answer.body) // BYTES_PER_TOKEN
        await self._answer(exchange, answer.body)

    async def _stream(
        self, exchange: Exchange, plan: Plan, claim: Claim, priority: int | None
    ) -> None:
        """Relay a stream, holding frames back until its first real output.

        Once a keep-alive has committed the status, frames are held only while another endpoint
        could still take over.
        """
        reply, record = exchange.reply, exchange.record
        could_fail_over = len(plan.left()) > 1  # this attempt's own endpoint is still among them
        held: list[bytes] = []
        opened = self._dispatcher.open_stream(
            claim.route,
            exchange.chat,
            request_id=record.request_id,
            priority=priority,
            trace=exchange.trace,
        )
        async with opened as stream:
            try:
                async for frame in stream:
                    if frame.output and not claim.first:
                        self._admission.first_token(claim)
                        record.ttft_ms = record.elapsed_ms()
                    held.append(frame.data)
                    if claim.first:
                        exchange.output_tokens += frame.data.count(b"\n\n")
                    if claim.first or (reply.started and not could_fail_over):
                        exchange.empty_answer = None  # an earlier attempt's cannot follow this
                        await reply.write(b"".join(held))
                        held.clear()
            except UpstreamFailure as failure:
                if failure.kind is Kind.EMPTY:
                    exchange.empty_answer = EmptyAnswer(failure.endpoint, b"".join(held))
                raise
            finally:
                record.malformed_chunks += stream.malformed
                record.usage = stream.usage or record.usage
        self._admission.succeed(claim)
        await self._answer(exchange, b"".join(held))

    async def _answer(self, exchange: Exchange, rest: bytes) -> None:
        """Send a whole answer, or the rest of a stream and its end."""
        if exchange.chat.stream:
            await exchange.reply.write(rest + DONE)
            await exchange.reply.finish()
        else:
            await exchange.reply.send_json(rest)

    def _note_failure(
        self, exchange: Exchange, plan: Plan, claim: Claim, failure: UpstreamFailure
    ) -> None:
        exchange.failures.append(failure)
        attempt = exchange.record.attempts[-1]
        attempt.status, attempt.error_type = failure.status, failure.error_type
        for skipped in failover.strike(plan, claim.route, failure):
            event(
                "context_window_fallback_skipped",
                request_id=exchange.record.request_id,
                endpoint=skipped.endpoint,
                context_length=skipped.context_length,
                refused_context_length=claim.route.context_length,
            )


def _used(exchange: Exchange) -> Used:
    """What a request has used so far. Attempts that were answered with an error cost nothing."""
    record, failures = exchange.record, exchange.failures
    unfailed = len(record.attempts) - len(failures)  # one that has answered, or was cut off
    prompts = unfailed + sum(failure.was_worked_on for failure in failures)
    return Used(
        is_sent=unfailed > 0 or any(failure.was_sent for failure in failures),
        prompts=prompts or min(exchange.output_tokens, 1),
        usage=record.usage,
        output_tokens=exchange.output_tokens,
    )
