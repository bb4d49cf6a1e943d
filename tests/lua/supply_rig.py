"""The scripts of one pool that an account gives, at a time that the test moves."""

from __future__ import annotations

from gateway.state.keys import Keys
from tests.lua.rig import LEASE_MS, Rig
from tests.redis_servers import ScriptStore

POOL = "team-plan"
EPOCH = 2_000_000_000


class SupplyRig(Rig):
    """`limit` is how many places there are."""

    def __init__(self, store: ScriptStore, keys: Keys) -> None:
        super().__init__(store, keys)
        self.keys = keys.supply(POOL)
        self.limit = 2

    @classmethod
    def beside(cls, rig: Rig) -> SupplyRig:
        """On the store of a model's rig, which gets to know the keys."""
        supply = cls(rig.store, rig._keys)
        supply.now_ms = rig.now_ms
        rig.keys = rig.keys | supply.keys
        return supply

    def take(self, claim: str, kind: str = "quota") -> str:
        args = {"kind": kind, "claim": claim, "limit": self.limit, "lease_ms": LEASE_MS}
        return self.run("supply_take", **args)[0]

    def place(self, claim: str) -> str:
        return self.take(claim, "places")

    def release(self, claim: str, unsent: int = 0) -> str:
        return self.run("supply_release", claim=claim, unsent=unsent)[0]

    def renew(self, *claims: str, put_back: int = 0) -> list[str]:
        args = {"ids": " ".join(claims), "lease_ms": LEASE_MS, "put_back": put_back}
        return self.run("supply_renew", **args)[1].split()

    def reap(self) -> int:
        return self.run("supply_reap")[1]

    def report(
        self,
        used: float,
        limit: float,
        *,
        reset_at_ms: int = 0,
        as_of_ms: int | None = None,
        epoch: int = EPOCH,
    ) -> str:
        args = {
            "epoch": epoch,
            "used": f"{used:.17g}",
            "limit": f"{limit:.17g}",
            "reset_at_ms": reset_at_ms,
            "as_of_ms": self.now_ms if as_of_ms is None else as_of_ms,
        }
        return self.run("supply_report", **args)[0]

    def used(self) -> float | None:
        """Of the quota; `None` while nobody has reported."""
        text = self.run("supply_state")[2]
        return float(text) if text else None

    def places(self) -> int:
        return self.run("supply_state")[5]
