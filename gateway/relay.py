"""One attempt's answer on its way to the client: whole, or as it comes."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from gateway.admission.admit import Admission
from gateway.admission.claims import Claim
from gateway.core.plan import Plan
from gateway.core.reply import EmptyAnswer
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.gating import UNBOUND, Waits
from gateway.dispatch.keypool import Asker
from gateway.dispatch.kinds import Kind
from gateway.dispatch.send import Dispatcher
from gateway.exchange import Attempt, Exchange
from gateway.protocols.token_estimate import BYTES_PER_TOKEN


class _Line(Struct):
    """What an attempt's ways to its answer mean for its claim and its record."""

    admission: Admission
    exchange: Exchange
    attempt: Attempt

    def queued(self) -> None:
        """It stands in line."""
        self.exchange.in_line.add(self.attempt.claim.id)
        self.admission.queued(self.attempt.claim)

    def passed(self, queued_s: float, *, has_place: bool) -> None:
        """It has left the line."""
        record = self.attempt.record
        record.queue_ms = round(record.queue_ms + queued_s * 1000, 2)
        if has_place:
            self.exchange.in_line.discard(self.attempt.claim.id)
            self.admission.sent(self.attempt.claim)

    def rotated(self, failure: UpstreamFailure) -> None:
        """It has failed with one key, and goes on with another."""
        self.attempt.record.rotated.append(failure.status or 0)


DONE = b"data: [DONE]\n\n"


class Relay:
    """Sends under a claim, marks its first output, and settles it when the answer is whole.

    A failure is raised as `UpstreamFailure`, its claim left to the caller.
    """

    def __init__(self, admission: Admission, dispatcher: Dispatcher) -> None:
        self._admission = admission
        self._dispatcher = dispatcher

    async def complete(self, exchange: Exchange, plan: Plan, attempt: Attempt) -> None:
        """Send a request whose answer comes whole."""
        record, claim = exchange.record, attempt.claim
        try:
            answer = await self._dispatcher.complete(
                claim.route,
                exchange.chat,
                request_id=record.request_id,
                asker=Asker(exchange.caller.role, claim.prompt.caller),
                priority=attempt.priority,
                waits=await self._waits(exchange, plan, claim),
                line=_Line(self._admission, exchange, attempt),
                trace=exchange.trace,
            )
        except UpstreamFailure as failure:
            if failure.completion is not None:
                claim.usage = failure.completion.usage
                exchange.empty_answer = EmptyAnswer(failure.endpoint, failure.completion.body)
            raise
        claim.usage = record.usage = answer.usage
        claim.output_tokens = exchange.output_tokens = len(answer.body) // BYTES_PER_TOKEN
        if answer.usage:
            attempt.step.used(answer.usage)
        self._admission.succeed(claim, 200)
        await self.answer(exchange, answer.body)

    async def stream(self, exchange: Exchange, plan: Plan, attempt: Attempt) -> None:
        """Relay a stream, holding frames back until its first real output.

        Once a keep-alive has committed the status, frames are held only while another endpoint
        could still take over. With output an attempt in a race goes on alone, or is cancelled.
        """
        reply, record, claim = exchange.reply, exchange.record, attempt.claim
        claim.output_tokens = 0
        # This attempt's own endpoint is still among those that are left.
        could_fail_over = len(plan.left()) > 1 or exchange.offload.cut is not None
        held: list[bytes] = []
        opened = self._dispatcher.open_stream(
            claim.route,
            exchange.chat,
            request_id=record.request_id,
            asker=Asker(exchange.caller.role, claim.prompt.caller),
            priority=attempt.priority,
            waits=await self._waits(exchange, plan, claim),
            line=_Line(self._admission, exchange, attempt),
            trace=exchange.trace,
        )
        async with opened as stream:
            try:
                async for frame in stream:
                    held.append(frame.data)
                    if frame.output or claim.first:
                        events = frame.data.count(b"\n\n")
                        claim.output_tokens += events
                        exchange.output_tokens += events
                    if frame.output and not claim.first:
                        await _win(exchange, attempt)
                        self._admission.first_token(claim)
                        attempt.step.first_output()
                        record.ttft_ms = record.elapsed_ms()
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
                claim.usage = stream.usage
                if stream.usage:
                    attempt.step.used(stream.usage)
                if not attempt.is_lost:
                    record.usage = stream.usage or record.usage
        if not claim.first:  # it is whole, and has a reason to say nothing
            await _win(exchange, attempt)
        self._admission.succeed(claim)
        await self.answer(exchange, b"".join(held))

    async def _waits(self, exchange: Exchange, plan: Plan, claim: Claim) -> Waits:
        """How long the attempt may wait: not for ever where its request could be offloaded."""
        candidates = plan.candidates
        offload = candidates.offload
        if offload is None:
            return UNBOUND
        kept = candidates.by_location.get(candidates.reserve)
        is_armed = kept and claim.could_offload and exchange.offload.is_pending
        if kept is None or not is_armed:
            return Waits(engine_limit=offload.engine_queue_limit)
        if not await self._dispatcher.serves(kept, exchange.caller.role):
            return Waits(engine_limit=offload.engine_queue_limit)
        return Waits(
            queue_until_s=asyncio.get_running_loop().time() + offload.wait_s,
            engine_wait_s=offload.wait_s,
            engine_limit=offload.engine_queue_limit,
        )

    async def answer(self, exchange: Exchange, rest: bytes) -> None:
        """Send a whole answer, or the rest of a stream and its end."""
        if exchange.chat.stream:
            await exchange.reply.write(rest + DONE)
            await exchange.reply.finish()
        else:
            await exchange.reply.send_json(rest)


async def _win(exchange: Exchange, attempt: Attempt) -> None:
    """From now on the answer is this attempt's. In a race, it is cancelled here if it has lost."""
    if attempt.race:
        await attempt.race.lead()
    exchange.record.endpoint = attempt.claim.route.endpoint
