"""What a prompt begins with, told by digests: which conversation it is of, and how far it goes.

Nothing here is text once it leaves: all digests are keyed. Strings count as the client writes them
in JSON, so that no text is decoded, and none can hold the control characters that mark where
messages and their parts begin. A client that escapes the same text otherwise is not recognised,
which costs an estimate and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
from msgspec import Raw

from gateway.core.digests import keyed
from gateway.core.request import ChatRequest, Message
from gateway.protocols.token_estimate import TOKENS_OF_MEDIA

OPENING_MESSAGES = 4
OPENING_BYTES = 2048
"""How much of each of them tells a conversation from others."""

_MESSAGE, _TEXT, _JSON = b"\x1e", b"\x1f", b"\x1d"
_NOTHING = (b"null", b"[]", b"{}")
_ANCHOR = re.compile(r"(\d{1,15}):([0-9a-f]{16})", re.ASCII)


def fingerprint(chat: ChatRequest, secret: bytes) -> str:
    """Tell a conversation by how it opens, as 16 hex digits; empty when it holds nothing.

    That is its first messages up to the first of the user, the beginning of the text of each, and
    the tools and response format, whose keys count in the order in which they are written.
    """
    opening: list[bytes | memoryview] = []
    for message in chat.messages[:OPENING_MESSAGES]:
        role = message.role
        opening += (_MESSAGE, role, _TEXT, _opening_of(message))
        if role == b'"user"':
            break
    for name in ("tools", "response_format"):
        value = chat.fields.get(name)
        if value is not None and bytes(value) not in _NOTHING:
            opening += (_JSON, name.encode(), bytes(value))
    if not opening:
        return ""
    digest = keyed(secret, b"fingerprint")
    digest.update(b"".join(opening))
    return digest.hexdigest()


class PromptBytes:
    """The messages of a prompt as one string of bytes, of which beginnings are compared.

    An anchor is such a beginning, `<length>:<digest>`. Checking another prompt's and then making
    this one's own takes a single pass. Holds as much memory as the prompt does: let go of it soon.
    """

    def __init__(self, chat: ChatRequest, secret: bytes) -> None:
        units = (unit for message in chat.messages for unit in _units(message))
        self._data = memoryview(b"".join(units))
        self._secret = secret
        self._begin()

    def anchor(self) -> str:
        """The anchor of the whole prompt."""
        length = len(self._data)
        return f"{length}:{self._digest(length)}"

    def holds(self, anchor: str) -> bool:
        """Whether this prompt begins with the whole prompt whose anchor that is."""
        parsed = _ANCHOR.fullmatch(anchor)
        if not parsed or int(parsed[1]) > len(self._data):
            return False
        return self._digest(int(parsed[1])) == parsed[2]

    def _begin(self) -> None:
        self._hash: blake2b = keyed(self._secret, b"anchor")
        self._hashed = 0

    def _digest(self, length: int) -> str:
        if length < self._hashed:
            self._begin()
        self._hash.update(self._data[self._hashed : length])
        self._hashed = length
        return self._hash.hexdigest()


def _opening_of(message: Message) -> bytes | memoryview:
    """The beginning of a message's text, which may come in parts."""
    content = message.fields.get("content")
    text = None if content is None else _string(content)
    if text is not None:
        return text[:OPENING_BYTES]
    pieces = (
        memoryview(part.text)[1:-1][:OPENING_BYTES]
        for part in message.parts
        if part.text is not None and part.type not in TOKENS_OF_MEDIA
    )
    return _TEXT.join(pieces)[:OPENING_BYTES]


def _units(message: Message) -> Iterator[bytes | memoryview]:
    """A message from its role to its last field.

    A content that is one string is the same as a single part with that text. Media, and what else
    there is, are JSON with keys in the client's order.
    """
    yield _MESSAGE + message.role
    content = message.content
    for part in message.parts:
        if part.text is not None and part.type not in TOKENS_OF_MEDIA:
            yield _TEXT
            yield memoryview(part.text)[1:-1]
        else:
            yield _JSON
            yield msgspec.json.encode(part.value)
    if content is not None and not message.parts:
        text = _string(content)
        yield _JSON if text is None else _TEXT
        yield bytes(content) if text is None else text
    others = dict(message.others())
    if others:
        yield _JSON
        yield msgspec.json.encode(others)


def _string(raw: Raw) -> memoryview | None:
    """A JSON string without its quotes; `None` for any other value."""
    whole = memoryview(raw)
    return whole[1:-1] if whole[0] == ord('"') else None
