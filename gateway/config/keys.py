"""Keys, users and teams to records. A secret is hashed here and goes no further."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from gateway.config.expand import Missing
from gateway.config.keys_schema import (
    KeyEntry,
    KeyRules,
    KeysFile,
    Limited,
    TeamEntry,
    UserEntry,
)
from gateway.config.limits import build_limits
from gateway.config.problems import Problems, did_you_mean, join, within
from gateway.config.result import KeyRecord, User
from gateway.config.validate import read
from gateway.core.limits import Limits
from gateway.core.masking import looks_like_key

T = TypeVar("T", KeyEntry, UserEntry, TeamEntry)


class Callers(Struct, frozen=True, kw_only=True):
    """What keys.yaml comes to."""

    keys: tuple[KeyRecord, ...] = ()
    users: Mapping[str, User] = {}
    teams: Mapping[str, Limits] = {}


class Known(Struct, frozen=True, kw_only=True):
    """Which names a key may use."""

    names: Mapping[str, str] | None
    """Every id and alias of a model -> id, `None` when models.yaml could not be read."""
    users: Mapping[str, User]
    teams: Mapping[str, Limits]
    may_be_new: bool
    """Whether the key may name a user or a team that is not listed, and hence has no limits."""


def sha256(secret: str) -> str:
    """Return the hex digest by which a caller's secret is known."""
    return hashlib.sha256(secret.encode()).hexdigest()


def build_callers(
    tree: object,
    missing: Sequence[Missing],
    names: Mapping[str, str] | None,
    admin_key_sha256: str | None,
    problems: Problems,
) -> Callers:
    """Read the content of keys.yaml.

    `names` are all declared ids and aliases of models, `None` when models.yaml could not be read.
    Keys that need a `missing` variable are checked, then left out, so that their callers are
    refused.
    """
    if not isinstance(tree, dict) or "keys" not in tree:
        read(tree, KeysFile, "", problems)
        return Callers()
    lists = [info.name for info in structs.fields(KeysFile)]
    for key in tree:
        if key not in lists:
            problems.error(key, "unknown key", did_you_mean(key, lists))
    teams = {
        entry.id: build_limits(entry, path, problems)
        for path, _, entry in _entries(tree.get("teams", []), "teams", TeamEntry, problems)
    }
    users: dict[str, User] = {}
    for path, _, entry in _entries(tree.get("users", []), "users", UserEntry, problems):
        if entry.team is not None and entry.team not in teams:
            _note_unknown("team", entry.team, teams, path, problems)
        limits = build_limits(entry, path, problems)
        users[entry.id] = User(team=entry.team, limits=limits)
    known = Known(names=names, users=users, teams=teams, may_be_new=False)
    records: list[KeyRecord] = []
    digests: dict[str, str] = {admin_key_sha256: "CONCORD_ADMIN_KEY"} if admin_key_sha256 else {}
    for path, item, key in _entries(tree["keys"], "keys", KeyEntry, problems):
        record = build_key(key, item, path, known, problems)
        if any(within(one.path, path) for one in missing):
            continue
        if (digest := _digest(key, item, path, problems)) is None:
            continue
        if digest in digests:
            problems.error(path, f"has the same secret as {digests[digest]}")
        digests.setdefault(digest, path)
        records.append(structs.replace(record, key_sha256=digest))
    return Callers(keys=tuple(records), users=users, teams=teams)


def build_key(
    entry: KeyRules,
    item: Mapping[str, Any],
    path: str,
    known: Known,
    problems: Problems,
) -> KeyRecord:
    """Read what a key says, all but its secret; `item` is the entry as written."""
    for name in ("id", "user", "team"):
        if looks_like_key(getattr(entry, name) or ""):
            problems.error(join(path, name), "looks like a key", "it is public: logs show it")
    models = _models(entry, known.names, path, problems)
    user = known.users.get(entry.user or "")
    if entry.user is not None and user is None and not known.may_be_new:
        _note_unknown("user", entry.user, known.users, path, problems)
    if entry.team is not None:
        if entry.team not in known.teams and not known.may_be_new:
            _note_unknown("team", entry.team, known.teams, path, problems)
        if user is not None and user.team != entry.team:
            of = f"the team {user.team!r}" if user.team else "no team"
            problems.error(
                join(path, "team"),
                f"is {entry.team!r}, but the user {entry.user!r} is of {of}",
                "a user has one team at most: leave the key's out",
            )
    return KeyRecord(
        id=entry.id,
        key_sha256="",
        role=entry.role,
        models=models,
        user=entry.user,
        team=entry.team,
        limits=build_limits(entry, path, problems),
        model_limits=_model_limits(item, models, known.names, path, problems),
        expires_ms=int(entry.expires.timestamp() * 1000) if entry.expires else None,
    )


def _entries(
    listed: object, name: str, kind: type[T], problems: Problems
) -> list[tuple[str, Mapping[str, Any], T]]:
    """Read the entries of a list, each with its path and as it is written."""
    if not isinstance(listed, list):
        problems.error(name, "must be a list")
        return []
    found = []
    ids: dict[str, int] = {}
    for index, item in enumerate(listed):
        path = f"{name}[{index}]"
        entry = read(item, kind, path, problems)
        if entry is None:
            continue
        if (first := ids.setdefault(entry.id, index)) != index:
            problems.error(f"{path}.id", f"the id {entry.id!r} is taken by {name}[{first}]")
        found.append((path, item, entry))
    return found


def _note_unknown(
    kind: str, name: str, known: Mapping[str, object], path: str, problems: Problems
) -> None:
    hint = did_you_mean(name, known) or f"list it under {kind}s"
    problems.error(join(path, kind), f"unknown {kind} {name!r}", hint)


def _digest(
    entry: KeyEntry, tree: Mapping[str, object], path: str, problems: Problems
) -> str | None:
    if ("key" in tree) == ("key_sha256" in tree):
        given = "both key and key_sha256 are" if "key" in tree else "neither key nor key_sha256 is"
        problems.error(path, f"{given} given", "write one of the two")
        return None
    if entry.key is None and entry.key_sha256 is None:
        return None
    if entry.key_sha256 is not None:
        return entry.key_sha256.lower()
    if not re.fullmatch(r"[\x21-\x7e]+", entry.key or ""):
        problems.error(f"{path}.key", "must be printable ASCII without spaces")
        return None
    return sha256(entry.key or "")


def _models(
    entry: KeyRules, names: Mapping[str, str] | None, path: str, problems: Problems
) -> frozenset[str] | None:
    if entry.models is None:
        return None
    if names is None:
        return frozenset(entry.models)
    for index, name in enumerate(entry.models):
        if name not in names:
            at = join(path, f"models[{index}]")
            problems.error(at, f"unknown model {name!r}", did_you_mean(name, names))
    return frozenset(names[name] for name in entry.models if name in names)


def _model_limits(
    item: Mapping[str, Any],
    models: frozenset[str] | None,
    names: Mapping[str, str] | None,
    path: str,
    problems: Problems,
) -> dict[str, Limits]:
    listed = item.get("model_limits")
    if not isinstance(listed, dict):
        return {}
    found: dict[str, Limits] = {}
    for name, limited in listed.items():
        at = join(path, f"model_limits.{name}")
        entry = read(limited, Limited, at, problems)
        model_id = name if names is None else names.get(name)
        if model_id is None:
            problems.error(at, f"unknown model {name!r}", did_you_mean(name, names or ()))
            continue
        if model_id in found:
            problems.error(at, f"is given twice: {name!r} stands for {model_id!r}")
        if models is not None and names is not None and model_id not in models:
            problems.error(at, "is no model that the key may name", "add it to models")
        if entry is not None:
            found[model_id] = build_limits(entry, at, problems)
    return found
