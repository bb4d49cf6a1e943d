"""Keys of callers that were made at run time, in Redis: records by the digest of their secret.

A record is text that people can read, `id=… role=… rpm=10 rpm:<model>=5:shadow …`. What somebody
has edited into nonsense is no key: it lets nobody in, rather than somebody without limits. Words
that this version does not know are passed over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from gateway.config.result import KeyRecord
from gateway.config.schema import Role
from gateway.core.limits import Limit, Limits
from gateway.state.keys import Keys, encode_id
from gateway.state.replies import Reply, StatusReply
from gateway.state.store import Runner
from gateway.telemetry.logs import event

_PER_CALL = 100
_LIMITS = ("rpm", "tpm", "max_parallel_requests", "max_budget")
_DURATION = "budget_duration_ms"
_LIMIT = re.compile(r"([1-9][0-9]{0,15})(:fixed)?(:shadow)?", re.ASCII)
_YEAR_10000_MS = 253_402_300_800_000
_COUNT = re.compile(r"[0-9]{1,15}", re.ASCII)


class FoundReply(Reply, frozen=True, array_like=True):
    """A key's digest and record, empty where there is none."""

    digest: str
    record: str


class ListReply(Reply, frozen=True, array_like=True):
    """Where to go on, and digests and records in turn."""

    cursor: str
    fields: list[str]


R = TypeVar("R", bound=Reply)


class MadeKey(Struct, frozen=True, kw_only=True):
    """A key as it is kept."""

    record: KeyRecord
    made_ms: int = 0
    made_by: str = ""
    """The caller id of the admin who made it."""
    text: str = ""
    """As it was read; empty for one that is not kept yet."""


class KeyStore:
    """Made keys. Every method is one atomic step, but for `all`, and may be repeated.

    Each raises `StateUnavailable` when Redis is away and `ScriptBug` on a fault of our own.
    """

    def __init__(self, runner: Runner, keys: Keys) -> None:
        self._runner = runner
        self._keys = keys.cluster()

    async def make(self, key: MadeKey) -> bool:
        """Keep a new key. Returns whether its id was free."""
        args = {
            "id": key.record.id,
            "digest": key.record.key_sha256,
            "record": write_record(key),
        }
        return (await self._call(StatusReply, "key_make", args)).status == "done"

    async def change(self, before: MadeKey, after: MadeKey) -> str:
        """Put one record in another's place: `done`, `gone`, or `changed` by somebody else."""
        args = {
            "id": before.record.id,
            "before": before.text,
            "after": write_record(after),
        }
        return (await self._call(StatusReply, "key_change", args)).status

    async def revoke(self, key_id: str) -> bool:
        """Forget a key. Returns whether there was one."""
        return (await self._call(StatusReply, "key_revoke", {"id": key_id})).status == "done"

    async def of_digest(self, digest: str) -> MadeKey | None:
        """Read the key whose secret has this SHA-256."""
        return await self._find(digest=digest)

    async def of_id(self, key_id: str) -> MadeKey | None:
        """Read the key of this id."""
        return await self._find(key_id=key_id)

    async def all(self) -> list[MadeKey]:
        """Read every key, some at a time; those that come or go meanwhile may be missing."""
        found: dict[str, MadeKey] = {}
        cursor = ""
        while cursor != "0":
            args: dict[str, str | int] = {"cursor": cursor or "0", "count": _PER_CALL}
            reply = await self._call(ListReply, "key_list", args)
            for digest, text in zip(reply.fields[::2], reply.fields[1::2], strict=True):
                if key := read_record(digest, text):
                    found[key.record.id] = key
            cursor = reply.cursor
        return list(found.values())

    async def _find(self, *, digest: str = "", key_id: str = "") -> MadeKey | None:
        reply = await self._call(FoundReply, "key_find", {"digest": digest, "id": key_id})
        if not reply.record:
            return None
        return read_record(reply.digest, reply.record)

    async def _call(self, shape: type[R], name: str, args: Mapping[str, str | int]) -> R:
        return msgspec.convert(await self._runner.run(name, self._keys, dict(args)), shape)


def write_record(key: MadeKey) -> str:
    """Spell a key for Redis, all but its digest."""
    record = key.record
    words: dict[str, str | int] = {"id": record.id, "role": record.role}
    if record.models is not None:
        words["models"] = ",".join(sorted(map(encode_id, record.models)))
    for name in ("user", "team"):
        if text := getattr(record, name):
            words[name] = text
    words.update(_limit_words(record.limits, ""))
    for model_id, limits in sorted(record.model_limits.items()):
        words.update(_limit_words(limits, f":{encode_id(model_id)}"))
    if record.expires_ms is not None:
        words["expires_ms"] = record.expires_ms
    words["made_ms"] = key.made_ms
    words["made_by"] = encode_id(key.made_by)
    return " ".join(f"{name}={value}" for name, value in words.items())


def read_record(digest: str, text: str) -> MadeKey | None:
    """Read what `write_record` has spelt; `None`, and an event, for what it cannot have."""
    words = dict(word.partition("=")[::2] for word in text.split())
    try:
        record = KeyRecord(
            id=words["id"],
            key_sha256=digest,
            role=msgspec.convert(words["role"], Role),
            models=_models(words.get("models")),
            user=words.get("user"),
            team=words.get("team"),
            limits=_read_limits(words, ""),
            model_limits={
                unquote(model_id): _read_limits(words, f":{model_id}")
                for model_id in _limited_models(words)
            },
            expires_ms=_date(words["expires_ms"]) if "expires_ms" in words else None,
        )
        made_ms = _date(words.get("made_ms", "0"))
    except (KeyError, ValueError, msgspec.ValidationError):
        event("made_key_unreadable", level=logging.ERROR, key=words.get("id", ""))
        return None
    made_by = unquote(words.get("made_by", ""))
    return MadeKey(record=record, made_ms=made_ms, made_by=made_by, text=text)


def _limit_words(limits: Limits, of: str) -> dict[str, str | int]:
    words: dict[str, str | int] = {}
    for name in _LIMITS:
        limit: Limit | None = getattr(limits, name)
        if limit:
            fixed, shadow = limit.is_fixed * ":fixed", limit.is_shadow * ":shadow"
            words[name + of] = f"{limit.most}{fixed}{shadow}"
    if limits.budget_duration_ms:
        words[_DURATION + of] = limits.budget_duration_ms
    return words


def _read_limits(words: Mapping[str, str], of: str) -> Limits:
    found = {name: _limit(words[name + of]) for name in _LIMITS if name + of in words}
    return Limits(**found, budget_duration_ms=_count(words.get(_DURATION + of, "0")))


def _limit(text: str) -> Limit:
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return Limit(int(match[1]), is_fixed=bool(match[2]), is_shadow=bool(match[3]))


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _date(text: str) -> int:
    if (ms := _count(text)) >= _YEAR_10000_MS:
        raise ValueError(text)
    return ms


def _limited_models(words: Iterable[str]) -> set[str]:
    parts = (word.partition(":") for word in words)
    return {model_id for name, _, model_id in parts if model_id and name in _LIMITS}


def _models(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    return frozenset(unquote(model_id) for model_id in text.split(",") if model_id)
