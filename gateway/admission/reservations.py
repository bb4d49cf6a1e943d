"""Reservations of this replica: what its requests hold of their callers' limits.

Each is a lease that is renewed until the request has ended. What the store has lost is put back
while the request runs.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Callable

from msgspec import Struct

from gateway.core.limits import NO_ROOM, Room, Scope
from gateway.core.prices import Prices
from gateway.state.caller_store import CallerStore, Need
from gateway.telemetry.logs import event

PER_CALL = 128
LOOKED_AFTER_LEASES = 4
"""For how many leases after its last reservation a tag is reaped."""


class Reservation(Struct, kw_only=True, eq=False):
    """Room of a caller's limits for one request. Ends once."""

    id: str
    tag: str
    scopes: tuple[Scope, ...]
    need: Need
    caller: str
    """Whom an answer is remembered for."""
    prompt_tokens: int
    """By our estimate."""
    images: int
    prices: Prices
    held: str = ""
    """What it holds, as the store has said; empty while it has not."""
    may_stand: bool = False
    """Whether the store has been asked for it, and has not refused."""
    room: Room = NO_ROOM
    """What was left for the caller when it was judged."""
    limited_by: str | None = None
    """The limit that has refused it."""


class Reservations:
    """What this replica holds, by tag. Lives as long as the replica."""

    def __init__(
        self,
        store: CallerStore,
        replica_id: str,
        *,
        lease_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._replica_id = replica_id
        self._clock = clock
        self._numbers = itertools.count(1)
        self._held: defaultdict[str, dict[str, Reservation]] = defaultdict(dict)
        self._used_s: dict[str, float] = {}
        """When a tag got its last reservation."""
        self.lease_ms = lease_ms

    def next_id(self) -> str:
        """A fresh id, `<replica>.<number>`."""
        return f"{self._replica_id}.{next(self._numbers)}"

    def add(self, reservation: Reservation) -> None:
        """Hold a reservation that was granted."""
        self._held[reservation.tag][reservation.id] = reservation
        self._used_s[reservation.tag] = self._clock()

    def end(self, reservation: Reservation) -> None:
        """Let go of a reservation, if it was held: it is renewed no more."""
        if reservation.tag in self._held:
            self._held[reservation.tag].pop(reservation.id, None)

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    async def renew(self) -> None:
        """Renew all that is held, put back what the store has lost, reap the tags in use.

        Raises `StateUnavailable`.
        """
        for tag, held in list(self._held.items()):
            ids = list(held)
            for first in range(0, len(ids), PER_CALL):
                some = ids[first : first + PER_CALL]
                lost = await self._store.renew(tag, reservations=some, lease_ms=self.lease_ms)
                if lost:
                    await self._reassert(tag, lost)
        self._forget_idle_tags()
        for tag in list(self._used_s):
            await self._store.reap(tag)

    async def _reassert(self, tag: str, lost: list[str]) -> None:
        put_back = 0
        for reservation_id in lost:
            reservation = self._held[tag].get(reservation_id)
            if reservation is None:
                continue  # it has ended since
            was_lost, held = await self._store.reassert(
                tag, reservation=reservation.id, held=reservation.held, lease_ms=self.lease_ms
            )
            reservation.held = held
            put_back += was_lost
        if put_back:
            event("state_regressed", level=logging.WARNING, limits=tag, reservations=put_back)

    def _forget_idle_tags(self) -> None:
        """Drop the tags that have had no reservation for a while: others may look after them."""
        idle_since_s = self._clock() - LOOKED_AFTER_LEASES * self.lease_ms / 1000
        for tag, used_s in list(self._used_s.items()):
            if used_s < idle_since_s and not self._held[tag]:
                del self._used_s[tag], self._held[tag]
