"""This replica's places at gates, and its requests that wait for one.

A place is taken in four steps: enter, wait to be told of a grant, confirm it, leave it. Who waits
asks nothing: grants are told on the replica's channel or by the answers to its own calls. One loop
per replica polls, which renews places and makes good whatever was missed or lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct, field

from gateway.core.gate import Gate
from gateway.errors import StateUnavailable
from gateway.gates.place import Place
from gateway.state.gate_store import GateStore
from gateway.state.grants import Grants
from gateway.telemetry.logs import bug, event

POLL_S = 0.5
PER_CALL = 128

Deliver = Callable[[Callable[[], Awaitable[object]]], None]
"""Makes a call in the background, again and again until the store has answered it."""


def nobody() -> None:
    """Wants to know."""


class _Waiter(Struct, eq=False):
    """A request in line. `woken` whenever there is something to do about it."""

    place: Place
    woken: asyncio.Event
    is_in_line: bool = False
    """Whether the store has given it a number."""
    is_lost: bool = False
    """Whether the store has forgotten it since."""


class _AtGate(Struct):
    """What this replica has at one gate, by ticket."""

    gate: Gate
    renewed_s: float
    waiting: dict[str, _Waiter] = field(default_factory=dict)
    held: dict[str, Place] = field(default_factory=dict)


class Waiting:
    """All that this replica has at gates. Lives as long as the replica; `run` MUST be running."""

    def __init__(
        self,
        store: GateStore,
        grants: Grants,
        deliver: Deliver,
        *,
        replica_id: str,
        lease_ms: int,
    ) -> None:
        self._store = store
        self._grants = grants
        self._deliver = deliver
        self._replica_id = replica_id
        self._lease_ms = lease_ms
        self._numbers = itertools.count(1)
        self._gates: dict[str, _AtGate] = {}

    async def enter(
        self,
        gate: Gate,
        wait_s: float,
        *,
        overflows: bool = False,
        queued: Callable[[], None] = nobody,
    ) -> Place | None:
        """Take a place, waiting in line for it for so long. `None` when there was none.

        A wait of 0 takes what is free, or leaves at once. With `overflows` a wait that was in vain
        ends with a place over the limit. `queued` is told that it has to stand in line. Raises
        `StateUnavailable`. Cancelled, it leaves nothing.
        """
        until_s = asyncio.get_running_loop().time() + wait_s
        place = Place(gate=gate, ticket=f"{self._replica_id}.{next(self._numbers)}")
        waiter = _Waiter(place, asyncio.Event())
        # It may be told of a grant before it is told that it waits.
        self._at(gate).waiting[place.ticket] = waiter
        try:
            if not await self._enter(waiter, "line" if wait_s > 0 else "no"):
                if wait_s > 0:
                    queued()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(until_s):
                            await self._stand(waiter)
                if overflows and not place.is_held:
                    place.is_over = await self._enter(waiter, "over")
        except BaseException as failure:
            # Whether it stands in line or has got a place in this instant: both are given back.
            was_sent = not isinstance(failure, StateUnavailable) or failure.may_have_happened
            if was_sent or waiter.is_in_line:
                self._end(place)
            raise
        finally:
            del self._gates[gate.tag].waiting[place.ticket]
        if place.is_held:
            return place
        if waiter.is_in_line:
            self._end(place)
        return None

    def leave(self, place: Place, status: int = 0) -> None:
        """Give a place back in the background, once; `status` is the upstream's, 0 for none."""
        if place.is_held:
            self._end(place, status)

    async def run(self) -> None:
        """Hear of grants and poll, until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._hear())
            while True:
                await self._poll_all()
                await asyncio.sleep(POLL_S)

    async def poll(self, *, renews_all: bool = False) -> None:
        """Renew what is due, hear what was missed, of every gate. Raises `StateUnavailable`."""
        now_s = asyncio.get_running_loop().time()
        for tag in list(self._gates):
            here = self._gates.get(tag)
            if here is None:  # gone meanwhile: there may be two polls at a time
                continue
            is_due = renews_all or now_s - here.renewed_s >= self._lease_ms / 3000
            if not here.waiting and not here.held:
                del self._gates[tag]
            elif here.waiting or is_due:
                await self._poll(here, is_due)
                here.renewed_s = now_s if is_due else here.renewed_s

    async def _hear(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._grants.tickets()) as tickets:
                    async for ticket in tickets:
                        if ticket:
                            self._wake(ticket)
                        else:  # some may have been missed, and the store may have begun anew
                            await self._poll_all(renews_all=True)
            except Exception:  # whatever it is, polls must go on
                bug(loop="grants")
            await asyncio.sleep(POLL_S)

    async def _poll_all(self, *, renews_all: bool = False) -> None:
        try:
            await self.poll(renews_all=renews_all)
        except StateUnavailable:
            pass  # the next one tries again
        except Exception:  # whatever it is, a replica that stops renewing loses its places
            bug(loop="gates")

    async def _poll(self, here: _AtGate, renews: bool) -> None:
        waiting, held = list(here.waiting), list(here.held) if renews else []
        for first in range(0, max(len(waiting), len(held)), PER_CALL):
            some = slice(first, first + PER_CALL)
            # What has ended since must not be put back.
            reply = await self._store.poll(
                here.gate,
                replica=self._replica_id,
                waiting=[t for t in waiting[some] if self._is_in_line(here, t)],
                held=[t for t in held[some] if t in here.held],
                lease_ms=self._lease_ms,
            )
            self._wake(*reply.granted.split())
            if reply.unknown and not renews:  # it has forgotten: what is held goes first
                return await self._poll(here, renews=True)
            for ticket in reply.unknown.split():
                if waiter := here.waiting.get(ticket):
                    waiter.is_lost = True
                    waiter.woken.set()
            if reply.restored:
                event(
                    "state_regressed",
                    level=logging.WARNING,
                    gate=here.gate.tag,
                    places=reply.restored,
                )

    @staticmethod
    def _is_in_line(here: _AtGate, ticket: str) -> bool:
        return ticket in here.waiting and here.waiting[ticket].is_in_line

    async def _enter(self, waiter: _Waiter, wait: str) -> bool:
        """Ask for a place. Returns whether there was one."""
        place = waiter.place
        reply = await self._store.enter(
            self._rule(place), ticket=place.ticket, wait=wait, lease_ms=self._lease_ms
        )
        self._wake(*reply.granted.split())
        waiter.is_in_line = reply.status == "waiting"
        return self._is_held(place, reply.status, reply.number)

    async def _stand(self, waiter: _Waiter) -> None:
        """Stand in line until the place is held."""
        while not waiter.place.is_held:
            await waiter.woken.wait()
            waiter.woken.clear()
            with contextlib.suppress(StateUnavailable):  # the next poll tells it again
                if waiter.is_lost:
                    await self._enter(waiter, "line")
                    waiter.is_lost = False
                else:
                    await self._confirm(waiter)

    async def _confirm(self, waiter: _Waiter) -> None:
        place = waiter.place
        reply = await self._store.confirm(place.gate, ticket=place.ticket, lease_ms=self._lease_ms)
        if not self._is_held(place, reply.status, reply.number) and reply.status == "gone":
            waiter.is_lost = True
            waiter.woken.set()

    def _is_held(self, place: Place, status: str, number: int) -> bool:
        place.number = number
        if status == "held":
            place.is_held = True
            self._gates[place.gate.tag].held[place.ticket] = place
        return place.is_held

    def _wake(self, *tickets: str) -> None:
        """Tell waiters of grants. Those that are not there any more are giving theirs back."""
        for ticket in tickets:
            for here in self._gates.values():
                if waiter := here.waiting.get(ticket):
                    waiter.woken.set()

    def _rule(self, place: Place) -> Gate:
        """The rule of a place's gate now; it may have been another when the place was asked for."""
        here = self._gates.get(place.gate.tag)
        return here.gate if here else place.gate

    def _at(self, gate: Gate) -> _AtGate:
        """What is at a gate, which from now on goes by this rule."""
        here = self._gates.get(gate.tag)
        if here is None:
            self._grants.expect(gate.tag)
            here = _AtGate(gate, asyncio.get_running_loop().time())
            self._gates[gate.tag] = here
        here.gate = gate
        return here

    def _end(self, place: Place, status: int = 0) -> None:
        place.is_held = False
        if here := self._gates.get(place.gate.tag):
            here.held.pop(place.ticket, None)
        self._deliver(lambda: self._leave(place, status))

    async def _leave(self, place: Place, status: int) -> None:
        reply = await self._store.leave(self._rule(place), ticket=place.ticket, status=status)
        self._wake(*reply.granted.split())
        if reply.reason:
            event(
                "upstream_limit_changed",
                level=logging.INFO,
                **place.gate.about,
                old_limit=reply.old_limit,
                new_limit=reply.new_limit,
                in_flight=reply.in_flight,
                waiting=reply.waiting,
                reason=reply.reason,
            )
