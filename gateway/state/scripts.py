"""Load the Lua scripts and their contracts from `lua/`.

A script's header is its contract, and the loader reads it:

    #!lua flags=allow-oom
    -- name: what it does
    -- KEYS[1] endpoints  hash  ...
    -- ARGV[1] claim      string
    -- RETURNS [status, unknown]
    -- @include lib/clock

So callers pass keys and arguments by name, and a wrong name fails before the network. Includes are
put in depth first, each once. The loader does not talk to Redis.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

_SHEBANG = re.compile(r"#!lua( flags=[a-z,-]+)?$")
_SLOT = re.compile(r"-- (KEYS|ARGV)\[(\d+)\] (\w+)(?:\s|$)")
_RETURNS = re.compile(r"-- RETURNS \[([\w, ]+(?:\n-- [\w, ]+)*)\]")
_INCLUDE = re.compile(r"-- @include (\S+)$")


class ScriptError(Exception):
    """A script file breaks the contract of its folder, or is called by a name it does not have."""


class Script(Struct, frozen=True, kw_only=True):
    """A flattened script with the names of what it takes and answers."""

    name: str
    shebang: str
    body: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    returns: tuple[str, ...]

    def text(self, *, shebang: bool = True) -> str:
        """The source to load. Servers older than 7 and the embedded store refuse the shebang."""
        return f"{self.shebang}\n{self.body}" if shebang else self.body

    def order(
        self, keys: Mapping[str, str], args: Mapping[str, str | int]
    ) -> tuple[list[str], list[str | int]]:
        """Put named keys and arguments into the script's order.

        `keys` may hold more than the script takes, `args` must be exact. Raises `ScriptError`.
        """
        try:
            if len(args) == len(self.args):
                return [keys[name] for name in self.keys], [args[name] for name in self.args]
        except KeyError:
            pass
        missing = [name for name in self.keys if name not in keys]
        wrong = missing + sorted(args.keys() ^ set(self.args))
        raise ScriptError(f"{self.name}: missing or unknown name: {', '.join(wrong)}")


def folder() -> Path:
    """Where the scripts are: inside an installed wheel, else beside this package."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "_data" / "lua"
    return shipped if shipped.is_dir() else package.parent / "lua"


def load_all(lua: Path, overrides: Mapping[str, str] | None = None) -> dict[str, Script]:
    """Load every verb in a folder. `overrides` replaces includes by name (tests step time so)."""
    return {path.stem: load(path, lua, overrides or {}) for path in sorted(lua.glob("*.lua"))}


def load(path: Path, lua: Path, overrides: Mapping[str, str]) -> Script:
    """Load one script. Raises `ScriptError` naming file and fault."""
    lines = path.read_text("utf-8").splitlines()
    shebang = lines[0] if lines else ""
    if not _SHEBANG.match(shebang):
        raise ScriptError(f"{path.name}:1: the first line must be `#!lua`, with flags if any")
    if len(lines) < 2 or not lines[1].startswith(f"-- {path.stem}: "):
        raise ScriptError(f"{path.name}:2: the header must begin with `-- {path.stem}: `")
    end = next((i for i, line in enumerate(lines[1:], 1) if not line.startswith("--")), len(lines))
    header, code = lines[1:end], lines[end:]
    keys = _slots(path, header, "KEYS")
    args = _slots(path, header, "ARGV")
    returns = _RETURNS.findall("\n".join(header))
    if len(returns) != 1:
        raise ScriptError(f"{path.name}: the header must have one `RETURNS [...]`")
    parts: list[str] = []
    _Includes(lua, overrides, parts).expand(path.name, "\n".join(header), ())
    return Script(
        name=path.stem,
        shebang=shebang,
        body="\n".join([*parts, *code]) + "\n",
        keys=keys,
        args=args,
        returns=tuple(name.strip() for name in returns[0].replace("\n--", "").split(",")),
    )


def sha1(text: str) -> str:
    """The digest under which Redis knows a script's text."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _slots(path: Path, header: list[str], kind: str) -> tuple[str, ...]:
    found = [match for line in header if (match := _SLOT.match(line)) and match[1] == kind]
    if [int(match[2]) for match in found] != list(range(1, len(found) + 1)):
        raise ScriptError(f"{path.name}: {kind} in the header must be numbered 1, 2, 3 ...")
    names = tuple(match[3] for match in found)
    if len(set(names)) != len(names):
        raise ScriptError(f"{path.name}: a name stands twice in {kind}")
    return names


class _Includes(Struct, frozen=True):
    """Collects what a text includes into `parts`, depth first, each file once."""

    lua: Path
    overrides: Mapping[str, str]
    parts: list[str]

    def expand(self, where: str, text: str, stack: tuple[str, ...]) -> None:
        names = [match[1] for line in text.splitlines() if (match := _INCLUDE.match(line))]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise ScriptError(f"{where}: includes {name} twice")
            if name in stack:
                raise ScriptError(
                    f"{where}: includes go in a circle: {' -> '.join((*stack, name))}"
                )
            source = self._read(where, name)
            self.expand(name, source, (*stack, name))
            if source not in self.parts:
                self.parts.append(source)

    def _read(self, where: str, name: str) -> str:
        if name in self.overrides:
            return self.overrides[name]
        path = self.lua / f"{name}.lua"
        if not path.is_file():
            raise ScriptError(f"{where}: includes {name}, and there is no {name}.lua")
        return path.read_text("utf-8")
