"""JSON with lone surrogate escapes, which its grammar allows and msgspec refuses.

JavaScript writes one when it cuts a string inside an emoji, an engine when it cuts a token there.
Nothing here costs more than msgspec alone until that has refused a text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

_T = TypeVar("_T")

# An escape begins where a run of backslashes is odd. A pair is matched so as to be passed over.
_SURROGATES = re.compile(
    rb"(\\(?<!\\\\)(?:\\\\)*+)u"
    rb"(?:([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|([dD][89a-fA-F][0-9a-fA-F]{2}))"
)
_fields = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()


def decode(decoder: msgspec.json.Decoder[_T], data: bytes | Raw) -> _T:
    """Decode, with U+FFFD in place of each lone surrogate. Raises msgspec.DecodeError."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        whole = _marked(bytes(data), rb"\ufffd", keeps_digits=False)
        if whole is None:
            raise
        return decoder.decode(whole)


def read_fields(data: bytes | Raw) -> dict[str, Raw]:
    """An object's values, each as it is written. Raises msgspec.DecodeError."""
    try:
        return _fields.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        mark = "lone" + secrets.token_hex(8)  # nobody can have put it into the text
        marked = _marked(bytes(data), mark.encode(), keeps_digits=True)
        if marked is None:
            raise
        named = re.compile(mark + "(.{4})")
        return {
            named.sub(lambda found: chr(int(found[1], 16)), name): Raw(
                bytes(value).replace(mark.encode(), rb"\u")
            )
            for name, value in _fields.decode(marked).items()
        }


def write_fields(fields: Mapping[str, Any]) -> bytes:
    """Write an object whose names may hold lone surrogates, as those of `read_fields` may."""
    try:
        return _encoder.encode(fields)
    except UnicodeEncodeError:
        members = [json.dumps(name).encode() + b":" + _write(fields[name]) for name in fields]
        return b"{" + b",".join(members) + b"}"


def _write(value: Any) -> bytes:
    return write_fields(value) if isinstance(value, dict) else _encoder.encode(value)


def _marked(data: bytes, mark: bytes, *, keeps_digits: bool) -> bytes | None:
    """The text with `mark` for the backslash and u of each lone escape; `None` without any."""
    found_any = False

    def replace(found: re.Match[bytes]) -> bytes:
        nonlocal found_any
        if found[2] is not None:
            return found[0]
        found_any = True
        return found[1][:-1] + mark + (found[3] if keeps_digits else b"")

    marked = _SURROGATES.sub(replace, data)
    return marked if found_any else None
