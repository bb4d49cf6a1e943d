"""The scripts of one provider's upstream keys, called by name, at a time that the test moves."""

from __future__ import annotations

import msgspec

from gateway.state.keys import Keys
from gateway.state.pool_store import ReleaseReply, ServesReply, TakeReply
from tests.lua.rig import CALLER, Rig
from tests.redis_servers import ScriptStore

PROVIDER = "deepseek"
ENDPOINT = "x:deepseek-api"
AT = "api.deepseek.com:443"
FREE, PRO, INTERNAL, ADMIN = range(4)
MUTE_MS = 20_000
BINDING_MS = 300_000
SEALED = "key=k7 min_role=pro made_ms=1 made_by=root sealed=c2VhbGVk"


class PoolRig(Rig):
    """`pool` is what the route has: two keys for everybody, to begin with."""

    def __init__(self, store: ScriptStore, keys: Keys) -> None:
        super().__init__(store, keys)
        self.keys = keys.bound(PROVIDER, ENDPOINT, CALLER)
        self.pool = "k0 0 k1 0"
        self.at = AT
        self.mute_ms = MUTE_MS
        self._uses = 0

    @classmethod
    def beside(cls, rig: Rig) -> PoolRig:
        """On the store of a model's rig, which gets to know the keys."""
        pool = cls(rig.store, rig._keys)
        pool.now_ms = rig.now_ms
        rig.keys = rig.keys | pool.keys
        return pool

    def by(self, caller: str) -> None:
        """Ask for another caller from now on."""
        self.keys = self._keys.bound(PROVIDER, ENDPOINT, caller)

    def take(
        self, *, rank: int = FREE, tried: str = "", binds: int = 1, epoch: int = 0
    ) -> TakeReply:
        reply = self.run(
            "pool_take",
            epoch=epoch,
            at=self.at,
            keys=self.pool,
            tried=tried,
            rank=rank,
            binds=binds,
        )
        return msgspec.convert(reply, TakeReply)

    def key(self, *, rank: int = FREE, tried: str = "", binds: int = 0) -> str:
        """The key that somebody gets whom nobody knows; empty for none."""
        return self.take(rank=rank, tried=tried, binds=binds).key

    def release(
        self,
        key: str,
        fault: str = "key",
        *,
        rank: int = FREE,
        tried: str = "",
        lease: str = "",
        status: int = 429,
    ) -> ReleaseReply:
        """Each call is a use of its own, unless a lease names one; the key itself was tried."""
        self._uses += 1
        reply = self.run(
            "pool_release",
            at=self.at,
            keys=self.pool,
            tried=tried or key,
            rank=rank,
            key=key,
            lease=lease or f"use.{self._uses}",
            fault=fault,
            status=status,
            mute_ms=self.mute_ms,
        )
        return msgspec.convert(reply, ReleaseReply)

    def serves(self, rank: int, *, epoch: int = 0) -> ServesReply:
        reply = self.run("pool_serves", epoch=epoch, at=self.at, keys=self.pool, rank=rank)
        return msgspec.convert(reply, ServesReply)

    def mute(self, key: str) -> None:
        """Have it refused while there is another."""
        assert self.release(key, rank=ADMIN).muted_for_ms == self.mute_ms

    def mutes(self) -> dict[str, str]:
        return self.client.hgetall(self.keys["mutes"])

    def declared(self) -> dict[str, str]:
        return self.client.hgetall(self.keys["declared"])

    def epoch(self) -> int:
        return int(self.client.get(self.keys["declared_epoch"]) or 0)

    def add(self, id: str = "a1", record: str = SEALED) -> str:
        return self.run("pool_add", id=id, record=record)[0]

    def retier(self, field: str, min_role: str) -> str:
        return self.run("pool_retier", field=field, min_role=min_role)[0]

    def remove(self, id: str = "a1") -> str:
        return self.run("pool_remove", id=id)[0]
