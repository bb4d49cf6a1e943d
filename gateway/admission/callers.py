"""Judge requests by the limits of their callers, and account for what they use.

A request reserves what it may use at the most before its first attempt. When its answer has ended,
the reservation is settled by what was used. A caller without limits costs nothing here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from gateway.admission.refusals import refusal
from gateway.admission.reservations import Reservation, Reservations
from gateway.admission.settlement import Settlement
from gateway.core.caller import Caller
from gateway.core.limits import Scope
from gateway.core.prices import Prices
from gateway.core.prompt import Prompt
from gateway.core.request import ChatRequest, Usage
from gateway.core.route import Model
from gateway.errors import CallerLimited, StateUnavailable
from gateway.protocols.output_bound import MOST_TOKENS, images, most_output
from gateway.protocols.token_estimate import estimate_tokens
from gateway.state.caller_store import CallerStore, Need, ReserveReply

USUAL_OUTPUT_TOKENS = 1024
"""What a request is taken to produce that does not say, but never more than a quarter of the
tokens that its caller may use."""
REFUSED_S = 1.0
"""For how long a refusal may be repeated without asking again."""
MOST_REMEMBERED = 10_000
"""Callers; beyond that the oldest is forgotten."""
MOST_NANOUSD = 10**15
"""What a request can cost; whatever a client writes, it stays a number that scripts can add up."""


class Used(Struct, frozen=True, kw_only=True):
    """What a request has used, as far as it is known."""

    is_sent: bool = False
    """Whether anything went upstream."""
    prompts: int = 0
    """In how many of its attempts an upstream has worked on the prompt."""
    usage: Usage | None = None
    """What the last of these has used, where its upstream said."""
    output_tokens: int = 0
    """What has come back by our own estimate, where it did not."""
    lost_output_tokens: int = 0
    """Of it, what came from others than the last, which their upstreams have not told either."""


class _Memory(Struct):
    """What a caller's last answer said of its limits."""

    fits_again: int
    """How many more requests there was room for, less those that have gone since."""
    refused: ReserveReply | None = None
    """A refusal that holds for every request that needs as much, for a while."""
    need: Need = Need(tokens=0, nanousd=0)
    at_s: float = 0.0

    def left_ms(self, need: Need, now_s: float) -> int | None:
        """In how long a request that is refused by this memory may come again (0: never)."""
        if self.refused is None or not self.need.is_within(need):
            return None
        retry_after_ms = self.refused.retry_after_ms
        passed_ms = int((now_s - self.at_s) * 1000)
        if passed_ms >= min(retry_after_ms or REFUSED_S * 1000, REFUSED_S * 1000):
            return None
        return max(retry_after_ms - passed_ms, 1) if retry_after_ms else 0


class CallerLimits:
    """Reserves and settles under one configuration. What is held outlives it."""

    def __init__(
        self,
        store: CallerStore,
        reservations: Reservations,
        settlement: Settlement,
        *,
        window_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._reservations = reservations
        self._settlement = settlement
        self._window_ms = window_ms
        self._clock = clock
        self._memories: dict[str, _Memory] = {}
        self._prices: dict[str, Prices] = {}

    def reservation(
        self, caller: Caller, model: Model, chat: ChatRequest, prompt: Prompt
    ) -> Reservation | None:
        """What a request has to reserve; `None` for a caller without limits. Asks nobody."""
        scopes = caller.scopes_for(model.id)
        if not scopes:
            return None
        prices = self._prices.get(model.id)
        if prices is None:
            prices = self._prices[model.id] = Prices.of(model.pricing)
        prompt_tokens = prompt.tokens or estimate_tokens(chat)
        output_tokens = _output_tokens(chat, model, scopes)
        usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=output_tokens)
        pictures = images(chat)
        return Reservation(
            id=self._reservations.next_id(),
            tag=caller.limit_tag,
            scopes=scopes,
            need=Need(
                tokens=min(max(prompt_tokens + output_tokens, 1), MOST_TOKENS),
                nanousd=min(prices.cost(usage, images=pictures), MOST_NANOUSD),
            ),
            caller=f"{caller.id} {model.id}" if model.id in caller.model_scopes else caller.id,
            prompt_tokens=prompt_tokens,
            images=pictures,
            prices=prices,
        )

    def fits_probably(self, reservation: Reservation) -> bool:
        """Whether the caller's last answer left room for another request like it, and takes it.

        However many come at once, no more are taken to fit than do: each that does not has a claim
        on an endpoint for a moment, where others need the room.
        """
        memory = self._memories.get(reservation.caller)
        if memory is None or not memory.fits_again:
            return False
        memory.fits_again -= 1
        return True

    async def reserve(self, reservation: Reservation) -> None:
        """Take room for a request. Raises `CallerLimited` or `StateUnavailable`.

        Whatever comes of it, the reservation MUST be settled in the end.
        """
        need = reservation.need
        memory = self._memories.get(reservation.caller)
        if memory and memory.refused:
            left_ms = memory.left_ms(need, self._clock())
            if left_ms is not None:
                reservation.room = memory.refused.room
                raise self._refusal(reservation, memory.refused, left_ms)
        reservation.may_stand = True  # also when the answer is not waited for
        try:
            reply = await self._store.reserve(
                reservation.tag,
                reservation.scopes,
                need,
                reservation=reservation.id,
                window_ms=self._window_ms,
                lease_ms=self._reservations.lease_ms,
            )
        except StateUnavailable as error:
            reservation.may_stand = error.may_have_happened
            raise
        reservation.room = reply.room
        self._remember(reservation, reply)
        if not reply.is_reserved:
            reservation.may_stand = False
            raise self._refusal(reservation, reply, reply.retry_after_ms)
        reservation.held = reply.held
        self._reservations.add(reservation)

    def settle(self, reservation: Reservation, used: Used) -> None:
        """End a reservation by what its request has used, without waiting."""
        if not reservation.may_stand:
            return
        reservation.may_stand = False
        self._reservations.end(reservation)
        tokens, nanousd = _cost(reservation, used)
        self._settlement.deliver(
            lambda: self._store.settle(
                reservation.tag,
                reservation=reservation.id,
                held=reservation.held,
                is_used=used.is_sent,
                tokens=tokens,
                nanousd=nanousd,
            )
        )

    def _remember(self, reservation: Reservation, reply: ReserveReply) -> None:
        memory = _Memory(fits_again=reply.fits_again)
        if reply.lasts:
            memory.refused, memory.need, memory.at_s = reply, reservation.need, self._clock()
        if reservation.caller not in self._memories and len(self._memories) >= MOST_REMEMBERED:
            del self._memories[next(iter(self._memories))]
        self._memories[reservation.caller] = memory

    def _refusal(
        self, reservation: Reservation, reply: ReserveReply, retry_after_ms: int
    ) -> CallerLimited:
        error = refusal(
            reply,
            reservation.scopes,
            reservation.need,
            window_ms=self._window_ms,
            retry_after_ms=retry_after_ms,
        )
        reservation.limited_by = error.limit
        return error


def _output_tokens(chat: ChatRequest, model: Model, scopes: tuple[Scope, ...]) -> int:
    """What a request may produce at the most, or may be taken to."""
    limits = [scope.limits.tpm.most // 4 for scope in scopes if scope.limits.tpm]
    return most_output(chat, model, unbounded=min([USUAL_OUTPUT_TOKENS, *limits]))


def _cost(reservation: Reservation, used: Used) -> tuple[int, int]:
    """Tokens and money: what the upstream said, else our estimates of what went back and forth."""
    told = used.usage if used.usage and used.usage.total else None
    estimated = used.prompts - 1 if told else used.prompts
    tokens = nanousd = 0
    if told:
        tokens, nanousd = told.total, reservation.prices.cost(told, images=reservation.images)
    if estimated > 0:
        usage = Usage(
            prompt_tokens=estimated * reservation.prompt_tokens,
            completion_tokens=used.lost_output_tokens if told else used.output_tokens,
        )
        tokens += usage.total
        nanousd += reservation.prices.cost(usage, images=estimated * reservation.images)
    return min(tokens, MOST_TOKENS), min(nanousd, MOST_NANOUSD)
