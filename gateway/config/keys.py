"""keys.yaml to key records. A secret is hashed here and goes no further."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from gateway.config.keys_schema import KeyEntry
from gateway.config.problems import Problems, did_you_mean
from gateway.config.result import KeyRecord
from gateway.config.validate import read


def sha256(secret: str) -> str:
    """Return the hex digest by which a caller's secret is known."""
    return hashlib.sha256(secret.encode()).hexdigest()


def build_keys(
    tree: object,
    names: Mapping[str, str] | None,
    admin_key_sha256: str | None,
    unset: frozenset[int],
    problems: Problems,
) -> tuple[KeyRecord, ...]:
    """Read the entries of `keys:`.

    `names` are all declared ids and aliases, `None` when models.yaml could not be read. Entries
    in `unset` need a variable that is not set; they are checked, then left out, so that their
    callers are refused.
    """
    if not isinstance(tree, list):
        problems.error("keys", "must be a list")
        return ()
    records: list[KeyRecord] = []
    ids: dict[str, int] = {}
    digests: dict[str, str] = {admin_key_sha256: "CONCORD_ADMIN_KEY"} if admin_key_sha256 else {}
    for index, item in enumerate(tree):
        path = f"keys[{index}]"
        entry = read(item, KeyEntry, path, problems)
        if entry is None:
            continue
        if (first := ids.setdefault(entry.id, index)) != index:
            problems.error(f"{path}.id", f"the id {entry.id!r} is taken by keys[{first}]")
        models = _models(entry, names, path, problems)
        if index in unset or (digest := _digest(entry, item, path, problems)) is None:
            continue
        if digest in digests:
            problems.error(path, f"has the same secret as {digests[digest]}")
        digests.setdefault(digest, path)
        records.append(KeyRecord(id=entry.id, key_sha256=digest, role=entry.role, models=models))
    return tuple(records)


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
    entry: KeyEntry, names: Mapping[str, str] | None, path: str, problems: Problems
) -> frozenset[str] | None:
    if entry.models is None:
        return None
    if names is None:
        return frozenset(entry.models)
    for index, name in enumerate(entry.models):
        if name not in names:
            problems.error(
                f"{path}.models[{index}]", f"unknown model {name!r}", did_you_mean(name, names)
            )
    return frozenset(names[name] for name in entry.models if name in names)
