"""`${NAME}` and `${NAME:-default}` in any string of a configuration, also inside a longer one.

A variable that is set but empty counts as unset: container tooling makes no difference between
the two. `$${` writes a literal `${`. A string with an unset variable becomes an `Unset`, so that
later steps see a gap instead of a half address. A default is plain text: references do not nest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from gateway.config.problems import join

_REFERENCE = re.compile(
    r"(?P<escaped>\$\$\{)"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|(?P<broken>\$\{)"
)


class Expanded(str):
    """A string that a variable went into. Numbers and flags may be read from such a one."""

    __slots__ = ()


class Unset:
    """Stands where a string refers to a variable that is not set."""

    __slots__ = ()


class Missing(Struct, frozen=True):
    """An unset variable, and the path of the string that needs it."""

    path: str
    name: str


class Expansion(Struct, frozen=True, kw_only=True):
    """A tree with its variables put in."""

    tree: object
    missing: tuple[Missing, ...]
    broken: tuple[str, ...]
    """Paths of strings with a `${` that is not a reference."""
    nested: tuple[str, ...]
    """Paths of strings with a `${` inside a default."""
    values: Mapping[str, str]
    """Value -> name of every variable used, to keep values out of messages."""


def expand(tree: object, env: Mapping[str, str]) -> Expansion:
    """Put the variables into every string of a tree of dicts, lists and scalars."""
    walk = _Walk(env)
    expanded = walk.value(tree, "")
    return Expansion(
        tree=expanded,
        missing=tuple(walk.missing),
        broken=tuple(walk.broken),
        nested=tuple(walk.nested),
        values=walk.values,
    )


class _Walk:
    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.missing: list[Missing] = []
        self.broken: list[str] = []
        self.nested: list[str] = []
        self.values: dict[str, str] = {}

    def value(self, value: object, path: str) -> object:
        if isinstance(value, dict):
            return {key: self.value(item, join(path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, str) and "${" in value:
            return self.text(value, path)
        return value

    def text(self, text: str, path: str) -> object:
        unset: list[str] = []
        used = False

        def replace(found: re.Match[str]) -> str:
            nonlocal used
            if found["escaped"]:
                return "${"
            if found["broken"]:
                self.broken.append(path)
                return found[0]
            if "${" in (found["default"] or ""):
                self.nested.append(path)
                return found[0]
            used = True
            name = found["name"]
            if value := self.env.get(name, ""):
                self.values[value] = name
                return value
            if found["default"] is None:
                unset.append(name)
                return ""
            return found["default"]

        result = _REFERENCE.sub(replace, text)
        if unset:
            self.missing += [Missing(path, name) for name in dict.fromkeys(unset)]
            return Unset()
        return Expanded(result) if used else result
