"""Keys of callers: those of keys.yaml to look at, and made ones to make, change and revoke.

A made key is judged as an entry of keys.yaml is, and may also name a user or a team that is not
listed there. Its secret is shown once. A change holds in every replica within five seconds.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct, structs

from gateway.auth.keys import ADMIN_ID
from gateway.auth.made import new_secret
from gateway.config.keys import Known, build_key, sha256
from gateway.config.keys_schema import HOLDER_ID, KeyRules
from gateway.config.limits import write_limits
from gateway.config.problems import Problems
from gateway.config.result import Config, KeyRecord
from gateway.config.validate import read
from gateway.errors import InvalidRequest, NotFound
from gateway.state.key_store import KeyStore, MadeKey

_TRIES = 3
"""A change is put to the key as it is now so often, when others change it meanwhile."""
Written = float | dict[str, Any] | None
"""A limit as it is written: a number, or a mapping that says more."""
_Plain = str | int | float | bool | None
_Limit = dict[str, _Plain]
_Limits = dict[str, _Plain | _Limit]
Asked = dict[str, _Plain | list[_Plain] | dict[str, _Plain | _Limits]]
"""A key as somebody asks for it: as deep as keys go, and otherwise not judged yet."""


class NoSuchKey(NotFound):
    """Neither the file nor the store has a key of this id."""


class KeyConflict(InvalidRequest):
    """The id is another key's, the key is the file's, or somebody else is changing it."""

    status = 409
    code = "conflict"


class ShownKey(Struct, frozen=True, kw_only=True):
    """A key as it would be written, without its secret."""

    id: str
    source: Literal["file", "made"]
    role: str
    models: list[str] | None = None
    user: str | None = None
    team: str | None = None
    rpm: Written = None
    tpm: Written = None
    max_parallel_requests: Written = None
    max_budget: Written = None
    budget_duration: str | None = None
    model_limits: dict[str, Any] | None = None
    expires: datetime | None = None
    made_at: datetime | None = None
    made_by: str | None = None


class NewKey(ShownKey, frozen=True, kw_only=True):
    """A key that has just been made, with its secret."""

    key: str


class AllKeys(Struct, frozen=True, kw_only=True):
    """Every key there is."""

    keys: list[ShownKey]


class Revoked(Struct, frozen=True, kw_only=True):
    """A key that is no more."""

    id: str
    revoked: bool = True


class CallerKeys:
    """The keys under one configuration."""

    def __init__(self, config: Config, store: KeyStore) -> None:
        self._config = config
        self._store = store
        self._of_file = {key.id: key for key in config.keys or ()}

    async def all(self) -> AllKeys:
        """The file's, then the made ones by id."""
        made = sorted(await self._store.all(), key=lambda key: key.record.id)
        of_file = map(_shown_of_file, self._of_file.values())
        return AllKeys(keys=[*of_file, *map(_shown, made)])

    async def of(self, key_id: str) -> ShownKey:
        """One key. Raises `NoSuchKey`."""
        if record := self._of_file.get(key_id):
            return _shown_of_file(record)
        return _shown(await self._made(key_id))

    async def record(self, key_id: str) -> KeyRecord:
        """What is known of a key. Raises `NoSuchKey`."""
        return self._of_file.get(key_id) or (await self._made(key_id)).record

    async def make(self, asked: Asked, *, by: str) -> NewKey:
        """Make a key. Raises `InvalidRequest`, and `KeyConflict` when its id is taken."""
        secret = new_secret()
        record = self._judged({"id": f"key-{secrets.token_hex(6)}", **_given(asked)})
        made = MadeKey(
            record=structs.replace(record, key_sha256=sha256(secret)),
            made_ms=int(time.time() * 1000),
            made_by=by,
        )
        is_taken = record.id in self._of_file or record.id == ADMIN_ID
        if is_taken or not await self._store.make(made):
            raise KeyConflict(f"There is a key '{record.id}' already.", param="id")
        return NewKey(key=secret, **structs.asdict(_shown(made)))

    async def change(self, key_id: str, changes: Asked) -> ShownKey:
        """Change what is given; null takes it away.

        Raises `NoSuchKey`, `InvalidRequest` and `KeyConflict`.
        """
        if key_id in self._of_file:
            raise _of_the_file(key_id)
        if changes.get("id", key_id) != key_id:
            raise InvalidRequest("The id of a key cannot be changed.", param="id")
        for _ in range(_TRIES):
            before = await self._made(key_id)
            record = self._judged(_given({**_written(before.record), **changes}))
            record = structs.replace(record, key_sha256=before.record.key_sha256)
            after = structs.replace(before, record=record)
            status = await self._store.change(before, after)
            if status == "done":
                return _shown(after)
            if status == "gone":
                raise _no_such(key_id)
        raise KeyConflict(f"The key '{key_id}' is being changed by others; try again.")

    async def revoke(self, key_id: str) -> Revoked:
        """Take a key away. Raises `NoSuchKey`, and `KeyConflict` for one of the file."""
        if _is_id(key_id) and await self._store.revoke(key_id):
            return Revoked(id=key_id)
        raise _of_the_file(key_id) if key_id in self._of_file else _no_such(key_id)

    async def _made(self, key_id: str) -> MadeKey:
        made = await self._store.of_id(key_id) if _is_id(key_id) else None
        if made is None:
            raise _no_such(key_id)
        return made

    def _judged(self, tree: dict[str, Any]) -> KeyRecord:
        """Read a key as an entry of keys.yaml. Raises `InvalidRequest` with all that is wrong."""
        problems = Problems("")
        config = self._config
        entry = read(tree, KeyRules, "", problems)
        known = Known(names=config.names, users=config.users, teams=config.teams, may_be_new=True)
        record = build_key(entry, tree, "", known, problems) if entry else None
        if record is None or problems.found:
            raise InvalidRequest(
                "; ".join(
                    f"{one.path}: {one.message}" + (f" ({one.hint})" if one.hint else "")
                    for one in problems.found
                ),
                param=problems.found[0].path,
            )
        return record


def _given(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if value is not None}


def _written(record: KeyRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "role": record.role,
        "models": None if record.models is None else sorted(record.models),
        "user": record.user,
        "team": record.team,
        **write_limits(record.limits),
        "model_limits": {
            model_id: write_limits(limits) for model_id, limits in record.model_limits.items()
        }
        or None,
        "expires": None if record.expires_ms is None else _date(record.expires_ms),
    }


def _shown_of_file(record: KeyRecord) -> ShownKey:
    return ShownKey(source="file", **_written(record))


def _shown(made: MadeKey) -> ShownKey:
    made_at = _date(made.made_ms)
    return ShownKey(source="made", made_at=made_at, made_by=made.made_by, **_written(made.record))


def _date(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _is_id(text: str) -> bool:
    return re.fullmatch(HOLDER_ID, text, re.ASCII) is not None


def _no_such(key_id: str) -> NoSuchKey:
    return NoSuchKey(f"There is no key '{key_id}'.")


def _of_the_file(key_id: str) -> KeyConflict:
    return KeyConflict(f"The key '{key_id}' is of keys.yaml: change it there.")
