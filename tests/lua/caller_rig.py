"""The scripts of callers' limits under one tag, called by name, at a time that the test moves."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.core.limits import Limit, Limits, Scope
from gateway.state.caller_store import ReassertReply, ReserveReply, packed
from gateway.state.keys import Keys
from gateway.state.standing import Use, use_of
from tests.lua.rig import LEASE_MS, Rig
from tests.redis_servers import ScriptStore

TAG = "team:acme"
WINDOW_MS = 60_000
PART_MS = 2_000


def scope(kind: str = "key", id: str = "alice", **limits: Limit | int) -> Scope:
    """A holder of limits; a bare number is one that refuses."""
    found = {
        name: Limit(value) if isinstance(value, int) and name != "budget_duration_ms" else value
        for name, value in limits.items()
    }
    return Scope(kind=kind, id=id, limits=Limits(**found))  # type: ignore[arg-type]


def shadow(most: int) -> Limit:
    return Limit(most, is_shadow=True)


def fixed(most: int) -> Limit:
    return Limit(most, is_fixed=True)


class CallerRig(Rig):
    """`now_ms` is the server's clock. What a reservation holds is remembered, as a replica does."""

    def __init__(self, store: ScriptStore, keys: Keys, tag: str = TAG) -> None:
        super().__init__(store, keys)
        self.keys = keys.limits(tag)
        self.held: dict[str, str] = {}

    @classmethod
    def beside(cls, rig: Rig) -> CallerRig:
        """On the store of a model's rig, which gets to know the keys."""
        callers = cls(rig.store, rig._keys)
        callers.now_ms = rig.now_ms
        rig.keys = rig.keys | callers.keys
        return callers

    def reserve(
        self,
        reservation: str,
        *scopes: Scope,
        tokens: int = 1,
        nanousd: int = 0,
        lease_ms: int = LEASE_MS,
        window_ms: int = WINDOW_MS,
    ) -> ReserveReply:
        reply = msgspec.convert(
            self.run(
                "reserve_caller",
                reservation=reservation,
                lease_ms=lease_ms,
                scopes=packed(scopes),
                window_ms=window_ms,
                tokens=tokens,
                nanousd=nanousd,
            ),
            ReserveReply,
        )
        if reply.is_reserved:
            self.held[reservation] = reply.held
        return reply

    def settle_caller(
        self,
        reservation: str,
        *,
        tokens: int = 0,
        nanousd: int = 0,
        outcome: str = "used",
        held: str | None = None,
    ) -> str:
        reply = self.run(
            "settle_caller",
            reservation=reservation,
            held=self.held.get(reservation, "") if held is None else held,
            outcome=outcome,
            tokens=tokens,
            nanousd=nanousd,
        )
        return reply[0]

    def renew_caller(self, *reservations: str, lease_ms: int = LEASE_MS) -> list[str]:
        return self.run("renew_caller", ids=" ".join(reservations), lease_ms=lease_ms)[1].split()

    def reassert_caller(self, reservation: str, held: str | None = None) -> str:
        reply = msgspec.convert(
            self.run(
                "reassert_caller",
                reservation=reservation,
                held=self.held[reservation] if held is None else held,
                lease_ms=LEASE_MS,
            ),
            ReassertReply,
        )
        self.held[reservation] = reply.held
        return reply.status

    def reap_caller(self, limit: int = 128) -> int:
        return self.run("reap_caller", limit=limit)[1]

    def uses(self, *scopes: Scope, window_ms: int = WINDOW_MS) -> dict[str, Use]:
        """By `<scope> <limit>`."""
        rows = self.run("caller_limits", scopes=packed(scopes), window_ms=window_ms)[2]
        return {f"{use.scope} {use.limit}": use for use in map(use_of, rows)}

    def taken(self, *scopes: Scope) -> dict[str, int]:
        return {name: use.taken for name, use in self.uses(*scopes).items()}

    def limit_fields(self) -> dict[str, str]:
        """All that is known of the limits, without the clock."""
        found = self.client.hgetall(self.keys["limits"])
        return {name: value for name, value in found.items() if name != "at_ms"}

    def put_limits(self, fields: Mapping[str, str | int]) -> None:
        """Edit by hand."""
        self.client.hset(self.keys["limits"], mapping=dict(fields))
