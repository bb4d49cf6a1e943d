"""Upstream keys in Redis: which are muted, who stays with which, what operators have declared.

A key is known by its digest. One that was added at run time is kept encrypted, by the same record
that says who may spend it: `key=… min_role=… made_ms=… made_by=… sealed=…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from gateway.core.route import ROLES
from gateway.state.keys import Keys, encode_id
from gateway.state.replies import Reply, StatusReply
from gateway.state.store import Runner

_NEVER = -1
"""The epoch of declarations that have not been read yet."""
_MUTE = re.compile(r"failures=(\d+) for_ms=(\d+) until_ms=(\d+) status=(\d+)", re.ASCII)


class TakeReply(Reply, frozen=True, array_like=True):
    """The key that a request is sent with next; in how long there may be one, 0 for never."""

    key: str
    retry_after_ms: int

    @property
    def is_stale(self) -> bool:
        """Whether nothing was decided, since operators have declared something else."""
        return self.status == "stale"


class ReleaseReply(Reply, frozen=True, array_like=True):
    """What became of a key, and of the request that was sent with it."""

    muted_for_ms: int
    serves_others: int
    """1 when a caller who may use all keys would get another one now."""

    @property
    def is_rotated(self) -> bool:
        """Whether the request may be sent with another key."""
        return self.status == "rotated"


class ServesReply(Reply, frozen=True, array_like=True):
    """Whether a role would get a key now: `serves`, `restricted`, `exhausted` or `stale`."""

    retry_after_ms: int


class MutesReply(Reply, frozen=True, array_like=True):
    """The server's time, and `<key>@<host>` and what is remembered, in turn."""

    now_ms: int
    fields: list[str]


class DeclaredReply(Reply, frozen=True, array_like=True):
    """The number of what is declared, and fields and texts in turn."""

    epoch: str
    fields: list[str]


class Pool(Struct, frozen=True, kw_only=True, dict=True):
    """The keys of one route, as the scripts take them."""

    provider: str
    endpoint: str
    at: str
    """Host and port, percent-encoded: a key is muted at one address."""
    epoch: int
    """Of the declarations that the keys follow."""
    keys: tuple[tuple[str, int], ...]
    """Digest and rank of the lowest role that may use it, in order."""

    @cached_property
    def packed(self) -> str:
        """The keys in one argument."""
        return " ".join(f"{key} {rank}" for key, rank in self.keys)


class Mute(Struct, frozen=True, kw_only=True):
    """What is remembered of a key's refusals at one address."""

    key: str
    at: str
    failures: int
    """Refusals in a row while its caller had no other key."""
    status: int
    """Of the last one; 0 is none."""
    left_ms: int
    """0 when it is not muted any more."""


class AddedKey(Struct, frozen=True, kw_only=True):
    """A key that was added at run time."""

    id: str
    key: str
    """Its digest."""
    min_role: str
    sealed: str
    """The key itself, encrypted."""
    made_ms: int = 0
    made_by: str = ""
    """The caller id of the admin who added it."""


class Declared(Struct, frozen=True, kw_only=True):
    """What operators have declared of a provider's keys."""

    epoch: int = _NEVER
    added: tuple[AddedKey, ...] = ()
    """In the order in which they were added."""
    min_roles: Mapping[str, str] = {}
    """Digest to lowest role, of keys that need not be configured any more."""

    def void(self, marks: Iterable[str]) -> Declared:
        """What counts for nothing, since it was declared under a secret that has none of these.

        Such a key cannot be decrypted, and such a digest is that of no key any more.
        """
        known = tuple(marks)
        return Declared(
            epoch=self.epoch,
            added=tuple(one for one in self.added if not one.key.startswith(known)),
            min_roles={
                key: role for key, role in self.min_roles.items() if not key.startswith(known)
            },
        )


R = TypeVar("R", bound=Reply)


class PoolStore:
    """Keys toward providers. Every method is one atomic step, and may be repeated.

    Each raises `StateUnavailable` when Redis is away and `ScriptBug` on a fault of our own.
    """

    def __init__(self, runner: Runner, keys: Keys) -> None:
        self._runner = runner
        self._keys = keys

    async def take(self, pool: Pool, *, caller: str, rank: int, tried: Iterable[str]) -> TakeReply:
        """Choose the key that a request is sent with next. `caller` is empty for an unknown one."""
        keys = self._keys.bound(pool.provider, pool.endpoint, caller)
        args: dict[str, str | int] = {
            "epoch": pool.epoch,
            "at": pool.at,
            "keys": pool.packed,
            "tried": " ".join(tried),
            "rank": rank,
            "binds": int(bool(caller)),
        }
        return await self._call(TakeReply, "pool_take", keys, args)

    async def release(
        self,
        pool: Pool,
        *,
        key: str,
        lease: str,
        fault: str,
        status: int,
        rank: int,
        tried: Iterable[str],
        mute_ms: int,
    ) -> ReleaseReply:
        """Record how a request with a key has gone: `fault` is `none`, `key` or `transient`.

        `tried` are all keys of the attempt so far; `lease` names this use of this one.
        """
        args: dict[str, str | int] = {
            "at": pool.at,
            "keys": pool.packed,
            "tried": " ".join(tried),
            "rank": rank,
            "key": key,
            "lease": lease,
            "fault": fault,
            "status": status,
            "mute_ms": mute_ms,
        }
        return await self._of(pool.provider, ReleaseReply, "pool_release", args)

    async def serves(self, pool: Pool, *, rank: int) -> ServesReply:
        """Ask whether a role would get a key now."""
        args: dict[str, str | int] = {
            "epoch": pool.epoch,
            "at": pool.at,
            "keys": pool.packed,
            "rank": rank,
        }
        return await self._of(pool.provider, ServesReply, "pool_serves", args)

    async def mutes(self, provider: str) -> list[Mute]:
        """Read which keys are muted, and what is remembered of refusals."""
        reply = await self._of(provider, MutesReply, "pool_mutes", {})
        return list(_mutes(reply))

    async def declared(self, provider: str, known: Declared | None = None) -> Declared:
        """Read what is declared, or return what is known when that still holds."""
        known = known or Declared()
        reply = await self._of(provider, DeclaredReply, "pool_declared", {"epoch": known.epoch})
        if reply.status == "same":
            return known
        return _declared(int(reply.epoch), reply.fields)

    async def add(self, provider: str, key: AddedKey) -> bool:
        """Keep a key. Returns whether neither its id nor the key itself was there already."""
        args: dict[str, str | int] = {"id": encode_id(key.id), "record": _write(key)}
        return (await self._of(provider, StatusReply, "pool_add", args)).status != "taken"

    async def retier_added(self, provider: str, key_id: str, min_role: str) -> bool:
        """Say who may spend a key that was added. Returns whether there is one."""
        return await self._retier(provider, f"added:{encode_id(key_id)}", min_role)

    async def retier(self, provider: str, key: str, min_role: str) -> None:
        """Say who may spend the key with this digest; `free` is everybody."""
        await self._retier(provider, f"hash:{key}", min_role)

    async def remove(self, provider: str, key_id: str) -> bool:
        """Forget a key that was added. Returns whether there was one."""
        args: dict[str, str | int] = {"id": encode_id(key_id)}
        return (await self._of(provider, StatusReply, "pool_remove", args)).status == "done"

    async def _retier(self, provider: str, field: str, min_role: str) -> bool:
        args: dict[str, str | int] = {"field": field, "min_role": min_role}
        return (await self._of(provider, StatusReply, "pool_retier", args)).status != "gone"

    async def _of(self, provider: str, shape: type[R], name: str, args: dict[str, str | int]) -> R:
        return await self._call(shape, name, self._keys.pool(provider), args)

    async def _call(
        self, shape: type[R], name: str, keys: dict[str, str], args: dict[str, str | int]
    ) -> R:
        return msgspec.convert(await self._runner.run(name, keys, args), shape)


def _mutes(reply: MutesReply) -> Iterator[Mute]:
    for field, text in zip(reply.fields[::2], reply.fields[1::2], strict=True):
        key, _, at = field.partition("@")
        if match := _MUTE.match(text):
            failures, for_ms, until_ms, status = map(int, match.groups())
            left_ms = until_ms - reply.now_ms
            yield Mute(
                key=key,
                at=unquote(at),
                failures=failures,
                status=status,
                left_ms=left_ms if 0 < left_ms <= for_ms else 0,
            )


def _declared(epoch: int, fields: Sequence[str]) -> Declared:
    added: list[AddedKey] = []
    min_roles: dict[str, str] = {}
    for field, text in zip(fields[::2], fields[1::2], strict=True):
        what, _, name = field.partition(":")
        if what == "hash":
            min_roles[name] = _role(text)
        elif what == "added" and (key := _read(unquote(name), text)):
            added.append(key)
    added.sort(key=lambda key: (key.made_ms, key.id))
    return Declared(epoch=epoch, added=tuple(added), min_roles=min_roles)


def _write(key: AddedKey) -> str:
    return (
        f"key={key.key} min_role={key.min_role} made_ms={key.made_ms} "
        f"made_by={encode_id(key.made_by)} sealed={key.sealed}"
    )


def _read(key_id: str, text: str) -> AddedKey | None:
    """Read a record that anybody may have edited; one without a key is none."""
    words = dict(word.partition("=")[::2] for word in text.split())
    if not words.get("key") or not words.get("sealed"):
        return None
    made_ms = words.get("made_ms", "")
    return AddedKey(
        id=key_id,
        key=words["key"],
        min_role=_role(words.get("min_role", "")),
        sealed=words["sealed"],
        made_ms=int(made_ms) if re.fullmatch(r"[0-9]{1,13}", made_ms) else 0,
        made_by=unquote(words.get("made_by", "")),
    )


def _role(text: str) -> str:
    """A role; what is none keeps a key for nobody."""
    return text if text in ROLES else "free"
