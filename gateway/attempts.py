"""Make an attempt: send under its claim, relay what comes, and say what it means if it fails."""

from __future__ import annotations

import asyncio

from gateway.admission.admit import Admission
from gateway.admission.claims import Claim
from gateway.core.plan import Plan
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.send import Dispatcher
from gateway.exchange import Attempt, Exchange
from gateway.race import Race
from gateway.relay import Relay
from gateway.routing import failover
from gateway.routing.prompts import Prompts
from gateway.telemetry.access import AttemptRecord
from gateway.telemetry.logs import event

LOST = "hedge_lost"
"""What the log calls the end of an attempt that another was faster than."""


class Attempts:
    """Makes attempts under one configuration; holds no state between them."""

    def __init__(self, prompts: Prompts, admission: Admission, dispatcher: Dispatcher) -> None:
        self._prompts = prompts
        self._admission = admission
        self.relay = Relay(admission, dispatcher)

    async def make(
        self,
        exchange: Exchange,
        plan: Plan,
        claim: Claim,
        race: Race | None = None,
        *,
        is_hedge: bool = False,
    ) -> bool:
        """Returns whether it has answered. If not, its endpoint is struck out of the plan.

        `is_hedge` says that it is the second of a race. Raises `GatewayError` when it fails after
        output has reached the client. An attempt that was cut off still has its claim: that MUST
        be abandoned.
        """
        attempt = self._begin(exchange, plan, claim, race, is_hedge=is_hedge)
        try:
            with attempt.step:
                if exchange.chat.stream:
                    await self.relay.stream(exchange, plan, attempt)
                else:
                    await self.relay.complete(exchange, plan, attempt)
        except UpstreamFailure as failure:
            _note_failure(exchange, plan, attempt, failure)
            await self._admission.fail(claim, failure)
            if claim.first:  # output has reached the client: no other endpoint may go on
                raise failure.to_client(exchange.chat.model) from failure
            return False
        except asyncio.CancelledError:
            if attempt.is_lost and attempt.record.error_type is None:
                attempt.record.error_type = LOST
                exchange.lost_output_tokens += claim.output_tokens or 0
            raise
        attempt.record.status = 200
        return True

    def _begin(
        self, exchange: Exchange, plan: Plan, claim: Claim, race: Race | None, *, is_hedge: bool
    ) -> Attempt:
        record, endpoint = exchange.record, claim.route.endpoint
        record.endpoint = endpoint
        if claim.route.location == plan.candidates.reserve:
            record.offload, record.offload_endpoint = exchange.offload.taken(), endpoint
            event(
                "route_offload",
                request_id=record.request_id,
                model=plan.model.id,
                endpoint=endpoint,
                reason=record.offload,
            )
        noted = AttemptRecord(
            endpoint=endpoint,
            probe=claim.is_probe,
            dropped=claim.dropped,
            pin=claim.pin,
            hedge=is_hedge,
        )
        record.attempts.append(noted)
        if record.overhead_ms is None:
            record.overhead_ms = record.elapsed_ms()
        return Attempt(
            claim=claim,
            record=noted,
            step=exchange.trace.attempting(claim.route, record),
            priority=self._prompts.priority(exchange.chat, claim),
            race=race,
        )


def _note_failure(
    exchange: Exchange, plan: Plan, attempt: Attempt, failure: UpstreamFailure
) -> None:
    route = attempt.claim.route
    exchange.failures.append(failure)
    exchange.in_line.discard(attempt.claim.id)
    attempt.record.status, attempt.record.error_type = failure.status, failure.error_type
    exchange.offload.failed(route.location, failure.wait, was_cut=failure.was_cut)
    for skipped in failover.strike(plan, route, failure):
        event(
            "context_window_fallback_skipped",
            request_id=exchange.record.request_id,
            endpoint=skipped.endpoint,
            context_length=skipped.context_length,
            refused_context_length=route.context_length,
        )
