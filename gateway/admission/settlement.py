"""End claims off the client's path: supervised, in order, repeated until the store has heard.

A claim whose settlement cannot be delivered within its lease is left to expire.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from gateway.admission.claims import UNSENT, Claim, Claims
from gateway.admission.supplies import Supplies
from gateway.core.outcome import Outcome
from gateway.core.prompt import NO_PROMPT
from gateway.errors import ScriptBug, StateUnavailable
from gateway.state.policy import Policy
from gateway.state.replies import RecordReply
from gateway.state.store import Store
from gateway.telemetry.logs import event

RETRY_S = 0.5


class Settlement:
    """Delivers `first_token` and `settle`, each claim's in order."""

    def __init__(
        self, store: Store, claims: Claims, supplies: Supplies | None = None, *, lease_ms: int
    ) -> None:
        self._store = store
        self._supplies = supplies
        self._claims = claims
        self._lease_s = lease_ms / 1000
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._firsts: dict[str, asyncio.Task[None]] = {}
        self.live_replicas = 2
        """How many replicas live, kept up to date by the heartbeat; until that knows, not alone."""

    def first_token(self, claim: Claim) -> None:
        """Record a claim's first output in the background."""
        task = self._spawn(self._record_first(claim))
        self._firsts[claim.id] = task
        task.add_done_callback(lambda _: self._firsts.pop(claim.id, None))

    def queue(self, claim: Claim) -> None:
        """Say in the background that a claim's attempt stands in line, or no more.

        Whenever it is said, it is what holds then: it may be said again, after what came later.
        """
        model_id = claim.route.model_id
        self.deliver(lambda: self._store.queue(model_id, claim=claim.id, is_queued=claim.is_queued))

    async def fail(
        self, claim: Claim, outcome: Outcome, status: int, *, unpins: bool = True
    ) -> None:
        """End a claim whose attempt has failed, and let its caller go elsewhere from now on.

        Without `unpins` the caller stays.
        Returns when the store knows, or after one failed try (more follow).
        """
        if not self._claims.end(claim):
            return
        unpin = claim.may_unpin and unpins
        # In a task of its own: the caller may leave, the claim must still end.
        is_tried = asyncio.Event()
        self._spawn(self._settle_until_heard(claim, outcome, status, unpin, is_tried))
        await is_tried.wait()

    def settle_later(self, claim: Claim, outcome: Outcome, status: int) -> None:
        """End a claim in the background."""
        if self._claims.end(claim):
            self._spawn(self._settle_until_heard(claim, outcome, status))

    def abandon(self, claim: Claim, grace_s: float) -> None:
        """End a claim as neutral after a grace, unless it has ended already."""
        if self._claims.end(claim):
            self._spawn(self._settle_after(grace_s, claim))

    def undo(self, model_id: str, claim_id: str, policy: Policy) -> None:
        """Give back what an `admit` may have granted to a caller who did not hear of it.

        The store takes calls in the order they were made, so this comes after that.
        """
        self._spawn(self._undo(model_id, claim_id, policy))

    def deliver(self, call: Callable[[], Awaitable[object]]) -> None:
        """Make a call in the background, again and again until the store has answered it."""
        self._spawn(self._until_heard(call))

    async def drain(self, timeout_s: float) -> None:
        """Wait until everything under way has been delivered, or for the timeout."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)

    async def _record_first(self, claim: Claim) -> None:
        try:
            reply = await self._store.first_token(
                claim.route.model_id,
                claim=claim.id,
                policy=claim.policy,
                prompt=claim.prompt,
                ttft_ms=0 if claim.outcomes_kept else claim.ttft_ms,  # else learned twice
            )
        except StateUnavailable:
            return  # the next renewal tells it again, or settle that it succeeded
        self._note_circuit(claim, reply)

    async def _settle_once(
        self, claim: Claim, outcome: Outcome, status: int, unpin: bool = False
    ) -> None:
        with claim.trace.settling(claim.route, outcome) as step:
            first = self._firsts.get(claim.id)
            if first:
                await asyncio.wait({first})
            reply = await self._store.settle(
                claim.route.model_id,
                claim=claim.id,
                location=claim.route.location,
                outcome=outcome,
                status=status,
                live_replicas=self.live_replicas,
                unpin=unpin,
                policy=claim.policy,
                prompt=claim.prompt,
                taken=claim.taken,
                used=claim.used,
                cooling=claim.cooling,
                noted=claim.noted,
            )
            step.turned(reply.circuit)
        self._note_circuit(claim, reply)
        if self._supplies is not None:
            await self._supplies.release(claim)

    async def _settle_until_heard(
        self,
        claim: Claim,
        outcome: Outcome,
        status: int,
        unpin: bool = False,
        is_tried: asyncio.Event | None = None,
    ) -> None:
        await self._until_heard(lambda: self._settle_once(claim, outcome, status, unpin), is_tried)

    async def _until_heard(
        self, deliver: Callable[[], Awaitable[object]], is_tried: asyncio.Event | None = None
    ) -> None:
        """Repeat a call until the store has answered it, at most for a lease.

        `is_tried` is set after the first, whatever became of it.
        """
        deadline_s = time.monotonic() + self._lease_s
        while True:
            try:
                await deliver()
                return
            except StateUnavailable:
                if time.monotonic() > deadline_s:
                    return
            finally:
                if is_tried:
                    is_tried.set()
            await asyncio.sleep(RETRY_S)

    async def _settle_after(self, grace_s: float, claim: Claim) -> None:
        await asyncio.sleep(grace_s)
        await self._settle_until_heard(claim, Outcome.NEUTRAL, 0)

    async def _undo(self, model_id: str, claim_id: str, policy: Policy) -> None:
        await self._until_heard(
            lambda: self._store.settle(
                model_id,
                claim=claim_id,
                location="",
                outcome=Outcome.NEUTRAL,
                status=0,
                live_replicas=self.live_replicas,
                unpin=False,
                policy=policy,
                prompt=NO_PROMPT,
                used=UNSENT,
            )
        )

    def _note_circuit(self, claim: Claim, reply: RecordReply) -> None:
        if reply.circuit:
            event(
                f"circuit_{reply.circuit}",
                level=logging.WARNING if reply.circuit == "opened" else logging.INFO,
                endpoint=claim.route.endpoint,
            )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # asked once: it costs a call to the kernel
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if isinstance(failure, ScriptBug):
            event("script_bug", level=logging.ERROR, error=str(failure))
        elif failure and not isinstance(failure, StateUnavailable):
            raise failure
