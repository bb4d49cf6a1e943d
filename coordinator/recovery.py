"""Recovery probes: endpoints that are out are tried with a request for one token.

So that no client has to: shortly before a cooldown ends, while requests are still kept away, the
coordinator takes the half-open probe. `admit` grants that to it because it is asked with a shorter
cooldown than the replicas', and then keeps them off as long as the probe lasts. One that fails
begins the cooldown anew. Where nobody was there in time, the coordinator asks as a replica does.

A try is sent with a key that is not muted. Whomever keys are kept for, it may use all: it is to
find out whether the endpoint serves anybody.

An endpoint that is paused by its provider's word is tried likewise, and stays paused until that
ends: a try that fails makes it last.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct, structs

from coordinator.current import Known
from coordinator.lease import Lease
from coordinator.tally import Tally
from gateway.admission.cooling import cooling_after_failure, cooling_after_success, outcome_of
from gateway.core.outcome import Outcome
from gateway.core.prompt import NO_PROMPT
from gateway.core.route import Model, Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.send import Dispatcher
from gateway.errors import ScriptBug, StateUnavailable
from gateway.protocols.openai_chat import read_request
from gateway.routing.weights import weigh
from gateway.state.decision import Decision
from gateway.state.replies import AdmitReply
from gateway.state.store import Store
from gateway.telemetry.logs import event

HEAD_START = 0.2
"""The last part of a cooldown, in which an endpoint is tried."""
LAST_MOMENT = 0.05
"""The very last part, in which clients may come first."""
MOST_HEAD_START_MS = 10_000
"""Of pauses, which may last for hours."""
PATIENCE = 0.75
"""How long an endpoint may take to answer, in cooldowns: less than clients are kept away."""
_PAUSE = re.compile(r"until_ms=(\d{1,15}) length_ms=(\d{1,15}) reason=\S+")
_COUNT = re.compile(r"\d{1,15}", re.ASCII)

How = Literal["early", "as a replica", "paused"]
"""Before the cooldown has ended; after; or while there is no circuit in the way."""


class Result(Struct, frozen=True, kw_only=True):
    """How a try has ended, as `settle` is told it."""

    outcome: Outcome
    status: int = 0
    used: str = ""
    cooling: str = ""


class Recovery:
    """Tries endpoints of routes with `recovery_probes`."""

    def __init__(
        self, store: Store, dispatcher: Dispatcher, known: Known, tally: Tally, *, lease: Lease
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._known = known
        self._tally = tally
        self._lease = lease
        self._numbers = itertools.count(1)
        self._not_before_s: dict[str, float] = {}
        """Endpoint -> when to try it again, on the loop's clock; far away while it is tried."""

    async def run(self) -> None:
        """Look for endpoints that are out, and try each at its time, until cancelled.

        Raises `StateUnavailable`.
        """
        self._not_before_s.clear()
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tries:
            while True:
                for model in self._known.config.models.values():
                    for route, how in await self._due(model):
                        if loop.time() >= self._not_before_s.get(route.endpoint, 0.0):
                            self._not_before_s[route.endpoint] = float("inf")
                            tries.create_task(self._try(model, route, how))
                await asyncio.sleep(min(max(self._cooldown_ms / 20_000, 0.05), 1.0))

    @property
    def _cooldown_ms(self) -> int:
        return self._known.current.policy.cooldown_ms

    async def _due(self, model: Model) -> list[tuple[Route, How]]:
        """The endpoints of a model that are out and whose time has come."""
        routes = [route for route in model.routes if route.recovery_probes]
        if not routes or model.model_type != "chat":
            return []
        _, standing = await self._store.rows(model.id)
        now_ms = self._known.now_ms()
        due = (
            (route, self._how(standing.rows.get(route.location, {}), now_ms)) for route in routes
        )
        return [(route, how) for route, how in due if how]

    def _how(self, row: Mapping[str, str], now_ms: int) -> How | None:
        """How to try an endpoint with this row now; `None` when it is not to be tried."""
        cooldown_ms = self._cooldown_ms
        if pause := _PAUSE.fullmatch(row.get("cooldown", "")):
            left_ms, length_ms = int(pause[1]) - now_ms, int(pause[2])
            if 0 < left_ms <= length_ms:
                head_start_ms = min(length_ms * HEAD_START, MOST_HEAD_START_MS)
                return "paused" if left_ms <= head_start_ms else None
        if not cooldown_ms:
            return None  # a circuit keeps nobody away
        if row.get("circuit") == "open":
            left_ms = _count(row.get("opened_at_ms")) + cooldown_ms - now_ms
            if LAST_MOMENT * cooldown_ms < left_ms <= cooldown_ms:
                return "early" if left_ms <= HEAD_START * cooldown_ms else None
            return "as a replica"
        if row.get("circuit") == "half_open":
            is_tried = "probe" in row and _count(row.get("probe_until_ms")) > now_ms
            return None if is_tried else "as a replica"
        return None

    async def _try(self, model: Model, route: Route, how: How) -> None:
        """Try an endpoint, if it may be, and have that count."""
        rests_s = 0.0
        try:
            claim = f"{self._lease.holder}.{next(self._numbers)}"
            reply = await self._admit(model, route, how, claim)
            if reply is not None and reply.is_admitted:
                result = Result(outcome=Outcome.NEUTRAL, used="unsent")
                try:
                    is_out = reply.probe or how == "paused"  # else it has come back meanwhile
                    if is_out and self._lease.is_held:
                        result = await self._ask(model, route, claim)
                except asyncio.CancelledError:
                    # Nobody knows how it would have ended, and clients need not wait for its lease.
                    with contextlib.suppress(StateUnavailable, ScriptBug):
                        await self._settle(route, claim, reply, Result(outcome=Outcome.NEUTRAL))
                    raise
                await self._settle(route, claim, reply, result)
                # What says nothing of the endpoint leaves it as it was, to be tried again at once.
                rests_s = self._cooldown_ms / 1000 * (result.outcome is Outcome.NEUTRAL)
        except StateUnavailable:
            pass  # the claim ends with its lease
        except ScriptBug as error:
            event("script_bug", level=logging.ERROR, error=str(error))
        finally:
            self._not_before_s[route.endpoint] = asyncio.get_running_loop().time() + rests_s

    async def _admit(self, model: Model, route: Route, how: How, claim: str) -> AdmitReply | None:
        """Claim the endpoint; `None` for one that operators keep out of service."""
        overrides = await self._store.overrides(model.id)
        in_service = {one.route.location for one in weigh(model, overrides) if one.weight > 0}
        if route.location not in in_service:
            return None
        policy = self._known.current.policy
        cooldown_ms = policy.cooldown_ms
        if how == "early":
            cooldown_ms = int(cooldown_ms * (1 - HEAD_START))
        limited = () if route.limits.is_empty else ((route.location, route.limits),)
        decision = Decision(
            policy=structs.replace(policy, cooldown_ms=cooldown_ms),
            epoch=overrides.epoch,
            candidates=((route.location, 1.0),),
            limited=limited,
            tried=(),
            order="pinned" if how == "paused" else "declared",
            draws=(),
            prompt=NO_PROMPT,
        )
        return await self._store.admit(
            model.id, decision, claim=claim, lease_ms=max(policy.cooldown_ms, 1000)
        )

    async def _ask(self, model: Model, route: Route, claim: str) -> Result:
        """Ask for one token."""
        self._tally.add("tried")
        body = {
            "model": route.model_id,
            "messages": [{"role": "user", "content": "ping"}],
            "max_tokens": 1,
        }
        chat = read_request(msgspec.json.encode(body))
        try:
            async with asyncio.timeout(max(self._cooldown_ms / 1000 * PATIENCE, 0.5)):
                answer = await self._dispatcher.complete(route, chat, request_id=f"req_{claim}")
        except TimeoutError:
            return Result(outcome=Outcome.FAILURE)
        except StateUnavailable:  # nobody says which key serves
            return Result(outcome=Outcome.NEUTRAL, used="unsent")
        except UpstreamFailure as failure:
            outcome = outcome_of(failure, route.cooldown)
            return Result(
                # An endpoint that is out already needs no second witness to stay so.
                outcome=Outcome.FAILURE if outcome is Outcome.CONNECT else outcome,
                status=failure.status or 0,
                used="" if failure.was_sent else "unsent",
                cooling=cooling_after_failure(
                    failure, route.cooldown, is_only=len(model.routes) == 1
                ),
            )
        self._tally.add("recovered")
        usage = answer.usage
        used = f"{usage.prompt_tokens} {usage.completion_tokens}" if usage else ""
        cooling = cooling_after_success(route.cooldown)
        return Result(outcome=Outcome.SUCCESS, status=200, used=used, cooling=cooling)

    async def _settle(self, route: Route, claim: str, reply: AdmitReply, result: Result) -> None:
        """End the claim as a replica does."""
        settled = await self._store.settle(
            route.model_id,
            claim=claim,
            location=route.location,
            outcome=result.outcome,
            status=result.status,
            live_replicas=self._known.live_replicas,
            unpin=False,
            policy=self._known.current.policy,
            prompt=NO_PROMPT,
            taken=reply.taken,
            used=result.used,
            cooling=result.cooling,
        )
        if settled.circuit:
            event(f"circuit_{settled.circuit}", endpoint=route.endpoint, by="recovery probe")


def _count(text: str | None) -> int:
    return int(text) if text and _COUNT.fullmatch(text) else 0
