"""Which of a caller's conversations a request belongs to, as far as the client says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gateway.config.schema import SESSION_FIELDS
from gateway.core.request import ChatRequest
from gateway.protocols.lone_escapes import decode

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_string = msgspec.json.Decoder(str)


def session_id(headers: Mapping[str, str], chat: ChatRequest, sources: Sequence[str]) -> str | None:
    """The first text that is given under one of `sources` (`affinity.session_ids`), trimmed.

    `headers` are by lower-case name. Clients choose it freely and at any length: it means something
    beside its caller only, and belongs in no log.
    """
    for source in sources:
        given = _field(chat, source) if source in SESSION_FIELDS else headers.get(source)
        if given and (found := given.strip()):
            return found
    return None


def _field(chat: ChatRequest, path: str) -> str:
    """The text of a body field, perhaps of one inside another; empty when it is no text."""
    name, _, inner = path.partition(".")
    value = chat.fields.get(name)
    if value is not None and inner:
        is_object = memoryview(value)[0] == ord("{")
        value = decode(_fields, value).get(inner) if is_object else None
    if value is None or memoryview(value)[0] != ord('"'):
        return ""
    return decode(_string, value)
