"""Upstream keys: those that a route lists, and those that its provider has in the environment.

A provider's label names an account, so a key is kept for the same role wherever it stands under
that label: where it is written more than once, the most restrictive role counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from gateway.config.expand import Unset
from gateway.config.models_schema import UpstreamKeyEntry
from gateway.config.problems import Problems
from gateway.core.route import ROLES, Model, Route, UpstreamKey

NUMBERED = 20
"""`<PROVIDER>_API_KEY` may be followed by a number from 1 to this."""
_FORM = re.compile(r"[\x21-\x7e]+")
_MUST = "must be printable ASCII without spaces"


def text_of(entry: str | UpstreamKeyEntry) -> str:
    """The key of an entry of `api_keys`."""
    return entry if isinstance(entry, str) else entry.key


def is_key(text: str) -> bool:
    """Say whether a text can be sent as a key."""
    return _FORM.fullmatch(text) is not None


def read_keys(
    one: str | None,
    several: Sequence[str | UpstreamKeyEntry] | None,
    tree: Mapping[str, Any],
    path: str,
    problems: Problems,
) -> tuple[UpstreamKey, ...]:
    """Read the `api_key` or `api_keys` of a model or a route, in order and each once."""
    if "api_key" in tree and "api_keys" in tree:
        problems.error(
            f"{path}.api_keys", "both api_key and api_keys are given", "write one of the two"
        )
    written: list[tuple[str, str | UpstreamKeyEntry]] = []
    if one is not None:
        written.append(("api_key", one))
    written += [(f"api_keys[{index}]", entry) for index, entry in enumerate(several or ())]
    keys: list[UpstreamKey] = []
    for place, entry in written:
        key = text_of(entry).strip()
        at = f"{path}.{place}" if isinstance(entry, str) else f"{path}.{place}.key"
        if not key:
            problems.warning(at, "is blank and left out")
        elif not is_key(key):
            problems.error(at, _MUST)
        else:
            keys.append(UpstreamKey(key, "free" if isinstance(entry, str) else entry.min_role))
    if several is not None and not keys and not _has_gaps(tree):
        problems.error(f"{path}.api_keys", "holds no key", "remove it when the upstream needs none")
    return _each_once(keys)


def join_providers(
    models: Mapping[str, Model], env: Mapping[str, str], problems: Problems
) -> dict[str, Model]:
    """Give each route the keys that its provider has in the environment, and every key its role."""
    routes = [route for model in models.values() for route in model.routes]
    given = {label: _of_environment(label, env, problems) for label in _labels(routes)}
    kept_for = roles_by_key(routes)

    def joined(route: Route) -> Route:
        theirs = given[route.provider] if route.takes_account_keys else ()
        roles = kept_for[route.provider]
        keys = tuple(
            UpstreamKey(key.secret, roles.get(key.secret, "free"))
            for key in _each_once([*route.api_keys, *theirs])
        )
        return route if keys == route.api_keys else structs.replace(route, api_keys=keys)

    return {
        model_id: structs.replace(model, routes=tuple(map(joined, model.routes)))
        for model_id, model in models.items()
    }


def roles_by_key(routes: Iterable[Route]) -> dict[str, dict[str, str]]:
    """Provider to key to the lowest role that may spend it, as of all routes together."""
    found: dict[str, dict[str, str]] = {}
    for route in routes:
        roles = found.setdefault(route.provider, {})
        for key in route.api_keys:
            roles[key.secret] = stricter(roles.get(key.secret, "free"), key.min_role)
    return found


def stricter(one: str, other: str) -> str:
    """The more restrictive of two roles."""
    return max(one, other, key=ROLES.index)


def _labels(routes: Iterable[Route]) -> dict[str, None]:
    return dict.fromkeys(route.provider for route in routes)


def _of_environment(label: str, env: Mapping[str, str], problems: Problems) -> list[UpstreamKey]:
    """The keys in `<PROVIDER>_API_KEY` and `<PROVIDER>_API_KEY1` and so on; empty is unset."""
    name = re.sub(r"[^A-Z0-9]+", "_", label.upper()).strip("_")
    found = []
    for variable in (f"{name}_API_KEY{number or ''}" for number in range(NUMBERED + 1)):
        key = env.get(variable, "").strip()
        if key and not is_key(key):
            problems.error(variable, _MUST)
        elif key:
            found.append(UpstreamKey(key))
    return found


def _each_once(keys: Iterable[UpstreamKey]) -> tuple[UpstreamKey, ...]:
    roles: dict[str, str] = {}
    for key in keys:
        roles[key.secret] = stricter(roles.get(key.secret, "free"), key.min_role)
    return tuple(UpstreamKey(secret, role) for secret, role in roles.items())


def _has_gaps(tree: Mapping[str, Any]) -> bool:
    listed = tree.get("api_keys")
    return isinstance(listed, list) and any(
        isinstance(item.get("key") if isinstance(item, dict) else item, Unset) for item in listed
    )
