"""How large a prompt is, without a tokenizer: a token for every four bytes of what is sent.

Text counts as UTF-8; media have a fixed price; everything else counts as the JSON that Python
writes by default. Replicas agree on it, which matters more than the provider's own count does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii

import msgspec

from gateway.core.request import ChatRequest, Message, Part
from gateway.protocols.lone_escapes import decode

BYTES_PER_TOKEN = 4
TOKENS_OF_MEDIA = {"image": 85, "image_url": 85, "audio": 200, "input_audio": 200}
"""By the type of a content part."""

_SMALL = 1024
_LARGE = 128 * 1024
_SEPARATORS = len(": ") + len(", ")
"""What an object has per member, its braces counted for the comma that the last one lacks."""
_BEYOND_ASCII = bytes(range(128, 256))
_string = msgspec.json.Decoder(str)


def estimate_tokens(chat: ChatRequest) -> int:
    """The prompt's size in tokens: messages, tools and response format, nothing else."""
    size = sum(_size_of_message(message) for message in chat.messages)
    for name in ("tools", "response_format"):
        if name in chat.fields:
            size += _size_of_option(bytes(chat.fields[name]))
    return size // BYTES_PER_TOKEN


def _size_of_message(message: Message) -> int:
    size = 0
    for name, raw in message.fields.items():
        if name == "role":
            continue
        value = bytes(raw)
        if value == b"null":
            continue
        if name == "content":
            size += _size_of_content(value, message.parts)
        else:
            size += len(encode_basestring_ascii(name)) + _size_of_json(value) + _SEPARATORS
    return size


def _size_of_content(content: bytes, parts: Sequence[Part]) -> int:
    if content.startswith(b'"'):
        return _size_of_text(content)
    if content.startswith(b"["):
        return sum(_size_of_part(part) for part in parts)
    return _size_of_oddity(content)


def _size_of_part(part: Part) -> int:
    tokens = TOKENS_OF_MEDIA.get(part.type)
    if tokens is not None:
        return tokens * BYTES_PER_TOKEN
    if part.text is not None:
        return _size_of_text(bytes(part.text))
    return _size_of_json(msgspec.json.encode(part.value))


def _size_of_text(string: bytes) -> int:
    """UTF-8 bytes of a JSON string's text. Only where something is escaped must it be read."""
    if b"\\" not in string:
        return len(string) - len('""')
    escapes = string if string.isascii() else string.translate(None, delete=_BEYOND_ASCII)
    text = decode(_string, escapes)
    return len(string) - len(escapes) + (len(text) if text.isascii() else len(text.encode()))


def _size_of_oddity(data: bytes) -> int:
    """Characters of a content that is no text, as Python prints its value; 0 if it cannot."""
    try:
        return len(str(json.loads(data)))
    except (ValueError, RecursionError):
        return 0


def _size_of_option(data: bytes) -> int:
    """Bytes of a value's JSON, none for one that Python takes for false."""
    size = _size_of_json(data)
    return 0 if 0 < size <= len("false") and not json.loads(data) else size


def _size_of_json(data: bytes) -> int:
    """Bytes of a value's JSON as Python writes it: ASCII, a space after each comma and colon."""
    if data[:1] == b'"' and data.isascii() and b"\\" not in data and b"\x7f" not in data:
        return len(data)
    if len(data) <= _SMALL:
        return _size_of_small(data)
    return _size_of_large(data) if len(data) <= _LARGE else _dumped(data)


def _dumped(data: bytes) -> int:
    """The same, by writing it; 0 for what Python will not write, such as a number too long."""
    try:
        return len(json.dumps(json.loads(data)))
    except (ValueError, RecursionError):
        return 0


# Tools come with every request of a conversation, and so do the tool calls it has made so far.
_size_of_small = lru_cache(maxsize=4096)(_dumped)
_size_of_large = lru_cache(maxsize=128)(_dumped)
