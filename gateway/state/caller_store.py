"""The callers' side of the store: reservations of their limits. One method per script."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec import Struct

from gateway.core.limits import Left, Room, Scope
from gateway.state.keys import Keys, encode_id
from gateway.state.packing import spell_limit
from gateway.state.replies import CountReply, RenewReply, Reply, StatusReply
from gateway.state.standing import Use, use_of
from gateway.state.store import Runner


class ReserveReply(Reply, frozen=True, array_like=True):
    """What `reserve_caller` decided."""

    limit: str
    """`<scope> <kind>` of the limit that refuses; empty when none does."""
    left: int
    """Of that limit."""
    retry_after_ms: int
    """0 when waiting is in vain."""
    held: str
    """What the reservation holds, to be told when it ends."""
    fits_again: int
    """How many more like it would be granted now."""
    rpm: int
    """-1 where there is no such limit; of `tpm`, too."""
    rpm_left: int
    rpm_reset_ms: int
    tpm: int
    tpm_left: int
    tpm_reset_ms: int

    @property
    def is_reserved(self) -> bool:
        """Whether the reservation stands."""
        return self.status == "reserved"

    @property
    def is_spent(self) -> bool:
        """Whether it was refused because money has been used up."""
        return self.status == "spent"

    @property
    def lasts(self) -> bool:
        """Whether it is a refusal that only time can change, and not the end of a request."""
        return self.is_spent or (self.status == "refused" and self.limit.endswith(("rpm", "tpm")))

    @property
    def room(self) -> Room:
        """What is left for the caller."""
        return Room(
            requests=Left(self.rpm, self.rpm_left, self.rpm_reset_ms) if self.rpm >= 0 else None,
            tokens=Left(self.tpm, self.tpm_left, self.tpm_reset_ms) if self.tpm >= 0 else None,
        )


class ReassertReply(Reply, frozen=True, array_like=True):
    """What a reservation that was put back holds now."""

    held: str


class UsesReply(Reply, frozen=True, array_like=True):
    """How many reservations stand, and a row of words per limit."""

    under_way: int
    rows: list[str]


class Need(Struct, frozen=True, kw_only=True):
    """What a request may use at the most."""

    tokens: int
    nanousd: int

    def is_within(self, other: Need) -> bool:
        """Whether nothing of it is more than the other's."""
        return self.tokens <= other.tokens and self.nanousd <= other.nanousd


R = TypeVar("R", bound=Reply)


class CallerStore:
    """Limits of callers. Every method is one atomic step under one tag, and may be repeated.

    Each raises `StateUnavailable` when Redis is away and `ScriptBug` on a fault of our own.
    """

    def __init__(self, runner: Runner, keys: Keys) -> None:
        self._runner = runner
        self._keys = keys

    async def reserve(
        self,
        tag: str,
        scopes: tuple[Scope, ...],
        need: Need,
        *,
        reservation: str,
        window_ms: int,
        lease_ms: int,
    ) -> ReserveReply:
        """Take room of every limit of the scopes, or of none."""
        args: dict[str, str | int] = {
            "reservation": reservation,
            "lease_ms": lease_ms,
            "scopes": packed(scopes),
            "window_ms": window_ms,
            "tokens": need.tokens,
            "nanousd": need.nanousd,
        }
        return await self._call(ReserveReply, "reserve_caller", tag, args)

    async def settle(
        self, tag: str, *, reservation: str, held: str, is_used: bool, tokens: int, nanousd: int
    ) -> str:
        """End a reservation by what was used; with `is_used` false nothing was sent at all.

        `held` is empty when the answer to the reservation was lost.
        """
        args: dict[str, str | int] = {
            "reservation": reservation,
            "held": held,
            "outcome": "used" if is_used else "unused",
            "tokens": tokens,
            "nanousd": nanousd,
        }
        return (await self._call(StatusReply, "settle_caller", tag, args)).status

    async def renew(self, tag: str, *, reservations: Sequence[str], lease_ms: int) -> list[str]:
        """Lengthen leases, at most 128 per call. Returns the ids that the store does not know."""
        args: dict[str, str | int] = {"ids": " ".join(reservations), "lease_ms": lease_ms}
        return (await self._call(RenewReply, "renew_caller", tag, args)).unknown.split()

    async def reassert(
        self, tag: str, *, reservation: str, held: str, lease_ms: int
    ) -> tuple[bool, str]:
        """Put back a reservation that the store has lost.

        Returns whether it had to, and what the reservation holds now.
        """
        args: dict[str, str | int] = {
            "reservation": reservation,
            "held": held,
            "lease_ms": lease_ms,
        }
        reply = await self._call(ReassertReply, "reassert_caller", tag, args)
        return reply.status == "done", reply.held

    async def reap(self, tag: str, *, limit: int = 128) -> int:
        """End expired reservations. Returns how many."""
        return (await self._call(CountReply, "reap_caller", tag, {"limit": limit})).count

    async def uses(
        self, tag: str, scopes: tuple[Scope, ...], *, window_ms: int
    ) -> tuple[int, list[Use]]:
        """Count reservations, and read how much of every limit is taken."""
        args: dict[str, str | int] = {"scopes": packed(scopes), "window_ms": window_ms}
        reply = await self._call(UsesReply, "caller_limits", tag, args)
        return reply.under_way, [use_of(row) for row in reply.rows]

    async def _call(self, shape: type[R], name: str, tag: str, args: dict[str, str | int]) -> R:
        keys = self._keys.limits(tag)
        return msgspec.convert(await self._runner.run(name, keys, args), shape)


def scope_name(scope: Scope) -> str:
    """How the scripts call a scope."""
    return encode_id(f"{scope.kind}:{scope.id}")


@lru_cache(maxsize=4096)
def packed(scopes: tuple[Scope, ...]) -> str:
    """The limits of scopes as the scripts take them (`lua/lib/scopes.lua`)."""
    words: list[str] = []
    for scope in scopes:
        limits = scope.limits
        written = (limits.rpm, limits.tpm, limits.max_parallel_requests, limits.max_budget)
        words += [scope_name(scope), *map(spell_limit, written), str(limits.budget_duration_ms)]
    return " ".join(words)
