"""A tree against a Struct, field by field, so that every mistake shows and not only the first.

The Struct is the schema: its types and limits are checked by msgspec, its docs become the
reference. Fields that fail keep their default, so that checks across fields can go on; a Struct
whose required field fails is `None`.

`null` is never a value: a key with nothing behind it is more often a forgotten line than a wish.
The exception is a field that says what it means, with `null_means`.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gateway.config.expand import Expanded, Unset
from gateway.config.problems import Problems, did_you_mean, join

T = TypeVar("T", bound=Struct)

_BAD = object()
_LISTED = 12
"""A hint lists the known keys of a mapping when they are no more than this."""
_LARGEST = 2**53
"""Larger whole numbers are not exact everywhere they go, such as in Lua."""
_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "empty",
    "date": "a date",
    "datetime": "a date with a time",
}
_ILL_FORMED = ("matching regex", "RFC3339", "timezone component")
"""Parts of msgspec's messages on texts that are not of the form they must have."""


def read(
    tree: object,
    into: type[T],
    path: str,
    problems: Problems,
    *,
    misplaced: Mapping[str, str] | None = None,
) -> T | None:
    """Build `into` from a mapping and note everything that does not fit.

    `misplaced` gives the hint for keys that somebody may well write here, though they belong
    elsewhere.
    """
    if not isinstance(tree, dict):
        problems.error(path, f"must be a mapping, not {_name(tree)}")
        return None
    fields = _fields(into)
    for key in tree:
        if key not in fields:
            elsewhere = misplaced or {}
            hint = elsewhere.get(key) or did_you_mean(key, fields) or did_you_mean(key, elsewhere)
            if not hint and len(fields) <= _LISTED:
                hint = f"known: {', '.join(fields)}"
            problems.error(join(path, key), "unknown key", hint)
    values: dict[str, Any] = {}
    complete = True
    for key, info in fields.items():
        value = _BAD
        if key in tree and not isinstance(tree[key], Unset):
            value = _field(tree[key], info.type, join(path, key), problems)
        elif key not in tree and info.required:
            problems.error(join(path, key), "is required")
        if value is not _BAD:
            values[info.name] = value
        elif info.required:
            complete = False
    return into(**values) if complete else None


@cache
def _fields(struct: type[Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    return {info.encode_name: info for info in msgspec.structs.fields(struct)}


def _field(value: object, kind: Any, path: str, problems: Problems) -> object:
    if value is None:
        if (meaning := _extra(kind, "null_means")) is not None:
            return meaning
        problems.error(path, "is empty", "give it a value or remove the key")
        return _BAD
    struct, many = _struct_of(kind)
    is_plain = not many and not isinstance(value, dict)
    if struct is None or (is_plain and (_may_be_scalar(kind) or _may_be_text(kind))):
        return _scalar(value, kind, path, problems)
    if not many:
        read_one = read(value, struct, path, problems)
        return _BAD if read_one is None else read_one
    if not isinstance(value, list):
        problems.error(path, f"must be a list, not {_name(value)}")
        return _BAD
    if _may_be_text(_entry_of(kind)):
        return _mixed(value, kind, path, problems)
    read_all = [
        read(item, struct, f"{path}[{index}]", problems) for index, item in enumerate(value)
    ]
    return _BAD if None in read_all else tuple(read_all)


def _mixed(values: list[Any], kind: Any, path: str, problems: Problems) -> object:
    """Read a list of strings and mappings. Those with a gap fall out of it."""
    found = [
        _field(value, _entry_of(kind), f"{path}[{index}]", problems)
        for index, value in enumerate(values)
        if not isinstance(value, Unset)
    ]
    return tuple(value for value in found if value is not _BAD)


def _scalar(value: object, kind: Any, path: str, problems: Problems) -> object:
    expanded = _holds_expanded(value)
    value = plain(value)
    try:
        result = _convert(value, kind, lax=expanded)
    except msgspec.ValidationError as error:
        where, message = _explain(str(error))
    else:
        where, message = "", _judge_number(result)
        if not message:
            return result
    hint = ""
    if message.startswith("must be a string, not") and not isinstance(value, list | dict):
        hint = "put it in quotes"
    if any(words in message for words in _ILL_FORMED):
        message = f"must be {_form(kind) or 'written otherwise'}"
    if value == 0 and not isinstance(value, bool):
        hint = _extra(kind, "when_zero") or ""
    if words := _choices(kind):
        message = f"must be one of {', '.join(words)}"
        if isinstance(value, bool):
            hint = _extra(kind, "when_false") or ""
        elif isinstance(value, str):
            hint = did_you_mean(value, words)
    problems.error(path + where, message, hint)
    return _BAD


def _convert(value: object, kind: Any, *, lax: bool) -> object:
    """Convert strictly; what a variable went into may be a number or flag written as text."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if not lax:
            raise
        return msgspec.convert(value, kind, strict=False)


def _judge_number(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "is too large"
    return ""


def plain(value: object) -> Any:
    """Return the tree without the marks that expansion left: gaps fall out of lists and dicts."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if not isinstance(item, Unset)}
    if isinstance(value, list):
        return [plain(item) for item in value if not isinstance(item, Unset)]
    return str(value) if isinstance(value, Expanded) else value


def _holds_expanded(value: object) -> bool:
    if isinstance(value, dict):
        return any(_holds_expanded(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_expanded(item) for item in value)
    return isinstance(value, Expanded)


def _struct_of(kind: Any) -> tuple[type[Struct] | None, bool]:
    """Find the Struct in `S`, `S | None` or `tuple[S, ...]`, and whether there are many."""
    kind = _bare(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind, False
    if typing.get_origin(kind) is tuple:
        return _struct_of(typing.get_args(kind)[0])[0], True
    if typing.get_origin(kind) in (UnionType, typing.Union):
        for option in typing.get_args(kind):
            struct, many = _struct_of(option)
            if struct is not None:
                return struct, many
    return None, False


def _may_be_scalar(kind: Any) -> bool:
    """Say whether a plain value may stand where a mapping may."""
    kind = _bare(kind)
    return typing.get_origin(kind) in (UnionType, typing.Union) and any(
        _bare(option) in (int, float) for option in typing.get_args(kind)
    )


def _may_be_text(kind: Any) -> bool:
    """Say whether a string may stand where a mapping may."""
    kind = _bare(kind)
    return typing.get_origin(kind) in (UnionType, typing.Union) and str in typing.get_args(kind)


def _entry_of(kind: Any) -> Any:
    """What a list holds, of `tuple[T, ...]` or `tuple[T, ...] | None`."""
    kind = _bare(kind)
    if typing.get_origin(kind) in (UnionType, typing.Union):
        kind = next(part for part in typing.get_args(kind) if typing.get_origin(part) is tuple)
    return typing.get_args(kind)[0]


def _bare(kind: Any) -> Any:
    while hasattr(kind, "__metadata__"):
        kind = kind.__origin__
    return kind


def _extra(kind: Any, key: str) -> Any:
    metas = getattr(kind, "__metadata__", ())
    return next((meta.extra[key] for meta in metas if meta.extra and key in meta.extra), None)


def _form(kind: Any) -> str | None:
    """Find the wording of a pattern, which may sit on the field or on the entries of a list."""
    if form := _extra(kind, "form"):
        return str(form)
    return next((form for part in typing.get_args(kind) if (form := _form(part))), None)


def _choices(kind: Any) -> tuple[str, ...]:
    """List the words of a `Literal`, alone or beside `None`."""
    kind = _bare(kind)
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    if typing.get_origin(kind) in (UnionType, typing.Union):
        return next((words for part in typing.get_args(kind) if (words := _choices(part))), ())
    return ()


def _explain(message: str) -> tuple[str, str]:
    """Turn msgspec's sentence into a place below the field and a message in our words."""
    message, _, where = message.partition(" - at `$")
    where = where.rstrip("`").replace("[...]", "[*]")
    found = re.fullmatch(r"Expected `([^`]+)`(?:, got `(\w+)`)?(.*)", message)
    if found is None:
        return where, message[:1].lower() + message[1:]
    wanted, got, rest = found.groups()
    words = [_WORDS.get(part, part) for part in wanted.split(" | ") if part != "null"]
    text = f"must be {' or '.join(dict.fromkeys(words))}"
    if got:
        text += f", not {'a fraction' if got == 'float' else _WORDS.get(got, got)}"
    rest = rest.replace(".0", "").replace(" of length >= 1", " that is not empty")
    return where, text + rest


def _name(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, str | Unset):
        return _WORDS["str"]
    kind = type(value).__name__
    return _WORDS.get({"dict": "object", "list": "array"}.get(kind, kind), kind)
