"""Pools that accounts give: quotas, and places. One method per script.

A pool has keys of its own, since models share it: what a claim takes here comes after the claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from gateway.core.supply import QuotaState, Supply
from gateway.state.coordinator_store import Fenced
from gateway.state.keys import Keys
from gateway.state.replies import CountReply, RenewReply, Reply, StatusReply
from gateway.state.store import Runner

R = TypeVar("R", bound=Reply)


class SupplyReply(Reply, frozen=True, array_like=True):
    """How a pool stands; `used` and `limit` are empty while nobody has reported."""

    now_ms: int
    used: str
    limit: str
    reset_at_ms: int
    places: int


class SupplyStore:
    """Every method is one atomic step and may be repeated.

    Each raises `StateUnavailable` when Redis is away and `ScriptBug` on a fault of our own.
    """

    def __init__(self, runner: Runner, keys: Keys) -> None:
        self._runner = runner
        self._keys = keys

    async def take(self, supply: Supply, *, claim: str, lease_ms: int) -> str:
        """Take one request or one place. Returns `taken`, `unknown`, `exhausted` or `full`."""
        args: dict[str, str | int] = {
            "kind": supply.kind,
            "claim": claim,
            "limit": supply.limit,
            "lease_ms": lease_ms,
        }
        return (await self._call(StatusReply, "supply_take", supply.pool, args)).status

    async def release(self, supply: Supply, *, claim: str, unsent: bool) -> None:
        """Give back a place; and what was taken of a quota, if nothing was sent."""
        args: dict[str, str | int] = {"claim": claim, "unsent": int(unsent)}
        await self._call(StatusReply, "supply_release", supply.pool, args)

    async def renew(
        self, pool: str, *, claims: Sequence[str], lease_ms: int, put_back: bool = False
    ) -> list[str]:
        """Keep places, at most 128 per call. Returns those that are lost, unless put back."""
        args: dict[str, str | int] = {
            "ids": " ".join(claims),
            "lease_ms": lease_ms,
            "put_back": int(put_back),
        }
        return (await self._call(RenewReply, "supply_renew", pool, args)).unknown.split()

    async def reap(self, pool: str) -> int:
        """Take back the places of the dead. Returns how many."""
        return (await self._call(CountReply, "supply_reap", pool, {})).count

    async def state(self, pool: str) -> tuple[QuotaState | None, int, int]:
        """How a quota stands, `None` while nobody has reported; places held; the server's time."""
        reply = await self._call(SupplyReply, "supply_state", pool, {})
        quota = None
        if reply.used:
            quota = QuotaState(
                used=float(reply.used), limit=float(reply.limit), reset_at_ms=reply.reset_at_ms
            )
        return quota, reply.places, reply.now_ms

    async def report(self, epoch: int, pool: str, found: QuotaState, *, as_of_ms: int) -> None:
        """Put down what a provider says, asked at `as_of_ms`. Raises `Fenced`."""
        args: dict[str, str | int] = {
            "epoch": epoch,
            "used": f"{found.used:.17g}",
            "limit": f"{found.limit:.17g}",
            "reset_at_ms": found.reset_at_ms,
            "as_of_ms": as_of_ms,
        }
        if (await self._call(StatusReply, "supply_report", pool, args)).status == "fenced":
            raise Fenced("supply_report")

    async def _call(self, shape: type[R], name: str, pool: str, args: dict[str, str | int]) -> R:
        keys = self._keys.supply(pool)
        return msgspec.convert(await self._runner.run(name, keys, args), shape)
