"""OpenAI chat completion answers, whole or in chunks: what the gateway needs to know of them.

The bytes themselves go to the client as they came but for the model's name. A field of an
unexpected type is treated as absent, for one odd value must not fail a healthy answer; only what
is not a JSON object at all is malformed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, field

from gateway.core.request import Usage
from gateway.protocols.error_body import ErrorBody, read_error
from gateway.protocols.lone_escapes import decode, read_fields, write_fields


class MalformedAnswer(ValueError):
    """The bytes are not a JSON object."""


class Chunk(Struct, frozen=True, kw_only=True):
    """What one streamed chunk, or a whole answer, says."""

    model: str | None = None
    choices: tuple[int, ...] = ()
    """The indexes of the choices it holds."""
    has_output: bool = False
    """Whether any choice holds something for the client: text, reasoning, a call, media."""
    finish_reasons: Mapping[int, str] = field(default_factory=dict)
    """By the index of the choice; only those that have ended."""
    usage: Usage | None = None
    usage_only: bool = False
    """Whether it has nothing but the usage: the chunk that `include_usage` adds."""
    error: ErrorBody | None = None


class _Message(Struct):
    content: Any = None
    tool_calls: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    thinking: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    function_call: Any = None
    audio: Any = None
    images: Any = None
    annotations: Any = None


class _Choice(Struct):
    index: Any = None
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: Any = None


class _Answer(Struct):
    model: Any = None
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    type: Any = None


_answer = msgspec.json.Decoder(_Answer)
_items = msgspec.json.Decoder(list[Raw])
_value = msgspec.json.Decoder(Any)
_message = msgspec.json.Decoder(_Message | None)
_CHOICE_FIELDS = {"index": _value, "finish_reason": _value, "delta": _message, "message": _message}
_encoder = msgspec.json.Encoder()
_NULL = Raw(b"null")
_NUMBERS = (int, float)
"""A tuple: writing it as a union makes one anew for every look."""
_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)


def read_chunk(data: bytes) -> Chunk:
    """Read the data of one streamed event. Raises MalformedAnswer."""
    return _read(data, "delta")


def read_completion(body: bytes) -> Chunk:
    """Read a whole answer. Raises MalformedAnswer."""
    return _read(body, "message")


def splice_model(data: bytes, model: str) -> bytes:
    """Put the client's name for the model into an answer that names another.

    Returns `data` itself when it names that model or none. Raises MalformedAnswer.
    """
    found = _MODEL.search(data)
    name = _encoder.encode(model)
    # With one brace before it the key belongs to the answer itself, as it does in OpenAI's order.
    if found is not None and data.count(b"{", 0, found.start()) == 1:
        if found[1] == name:
            return data
        return data[: found.start(1)] + name + data[found.end(1) :]
    fields = _read_fields(data)
    if "model" not in fields or bytes(fields["model"]) in (name, b"null"):
        return data
    fields["model"] = Raw(name)
    return write_fields(fields)


def _read(data: bytes, part: Literal["delta", "message"]) -> Chunk:
    """Read an answer whose choices hold a delta or a message."""
    try:
        answer = decode(_answer, data)
    except msgspec.ValidationError:
        answer = _read_leniently(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedAnswer(f"not JSON: {error}") from None
    finish_reasons: dict[int, str] = {}
    indexes: list[int] = []
    has_output = False
    for position, choice in enumerate(answer.choices or ()):
        index = choice.index if isinstance(choice.index, int) else position
        indexes.append(index)
        if isinstance(choice.finish_reason, str) and choice.finish_reason:
            finish_reasons[index] = choice.finish_reason
        message = choice.delta if part == "delta" else choice.message
        has_output = has_output or (message is not None and _has_output(message))
    return Chunk(
        model=answer.model if isinstance(answer.model, str) else None,
        choices=tuple(indexes),
        has_output=has_output,
        finish_reasons=finish_reasons,
        usage=_read_usage(answer.usage),
        usage_only=not indexes and isinstance(answer.usage, dict),
        error=_read_error(answer, data),
    )


def _read_leniently(data: bytes) -> _Answer:
    """Read an answer in which something has a type it should not have."""
    fields = _read_fields(data)
    answer = _Answer()
    for name in ("model", "usage", "error", "object", "type"):
        with suppress(msgspec.ValidationError):
            setattr(answer, name, decode(_value, fields.get(name, _NULL)))
    with suppress(msgspec.ValidationError):
        items = decode(_items, fields.get("choices", _NULL))
        answer.choices = [choice for item in items if (choice := _read_choice(item))]
    return answer


def _read_choice(raw: Raw) -> _Choice | None:
    """Read one choice as far as it has the right shape."""
    try:
        fields = read_fields(raw)
    except msgspec.ValidationError:
        return None
    choice = _Choice()
    for name, decoder in _CHOICE_FIELDS.items():
        with suppress(msgspec.ValidationError):
            setattr(choice, name, decode(decoder, fields.get(name, _NULL)))
    return choice


def _read_fields(data: bytes) -> dict[str, Raw]:
    """The top level of an answer, each value unread. Raises MalformedAnswer."""
    try:
        return read_fields(data)
    except msgspec.ValidationError:
        raise MalformedAnswer("not a JSON object") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedAnswer(f"not JSON: {error}") from None


def _has_output(message: _Message) -> bool:
    """Whether a delta or message holds anything that a client would show or act on."""
    return bool(
        message.content
        or message.tool_calls
        or message.reasoning_content
        or message.reasoning
        or message.thinking
        or message.reasoning_details
        or message.refusal
        or message.function_call
        or message.audio
        or message.images
        or message.annotations
    )


def _read_error(answer: _Answer, data: bytes) -> ErrorBody | None:
    """The error in place of an answer, if there is one."""
    if answer.error or answer.object == "error" or answer.type == "error":
        return read_error(data) or ErrorBody()
    return None


def _read_usage(usage: Any) -> Usage | None:
    """Tokens as counted; cached ones also where DeepSeek and Moonshot put them."""
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(
            cached or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")
        ),
    )


def _count(value: Any) -> int:
    """A number of tokens; anything else counts as none."""
    return int(value) if isinstance(value, _NUMBERS) and value > 0 else 0
