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
        text = _TEXT.join(piece[:OPENING_BYTES] for piece in _texts(message))
        opening += (_MESSAGE, message.role, _TEXT, text[:OPENING_BYTES])
        if message.role == b'"user"':
            break
    for name in ("tools", "response_format"):
        value = bytes(chat.fields.get(name, b"null"))
        if value not in _NOTHING:
            opening += (_JSON, name.encode(), value)
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


def _texts(message: Message) -> Iterator[memoryview]:
    """The text of a message, a piece for each part that has some."""
    content = message.content
    if content is not None and _is_string(content):
        yield _text(content)
    for part in message.parts:
        if part.text is not None and part.type not in TOKENS_OF_MEDIA:
            yield _text(part.text)


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
            yield _text(part.text)
        else:
            yield _JSON
            yield msgspec.json.encode(part.value)
    if content is not None and not message.parts:
        yield _TEXT if _is_string(content) else _JSON
        yield _text(content) if _is_string(content) else bytes(content)
    others = dict(message.others())
    if others:
        yield _JSON
        yield msgspec.json.encode(others)


def _is_string(raw: Raw) -> bool:
    return memoryview(raw)[0] == ord('"')


def _text(raw: Raw) -> memoryview:
    """A JSON string without its quotes."""
    return memoryview(raw)[1:-1]
