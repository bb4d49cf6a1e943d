"""OpenAI chat completion requests: in from the client, out to an upstream.

Reads only the fields that the gateway acts on; every other one stays the client's raw JSON and
goes upstream as it came. Whether a value is allowed in those is for the upstream to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from gateway.core.request import ChatRequest, Message, Part
from gateway.core.route import Route
from gateway.errors import InvalidRequest
from gateway.protocols.lone_escapes import decode, read_fields, write_fields

_MODALITY_OF_PART: Mapping[str, str] = {
    "image_url": "image",
    "image": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "video",
    "video": "video",
    "input_video": "video",
    "file": "file",
    "input_file": "file",
}
_OUTPUT_BOUNDS = ("max_completion_tokens", "max_tokens")
_CORE_FIELDS = frozenset({"model", "messages", "stream"})
MOST_VALUES = 100_000
"""Far more than a conversation holds. Each costs time in which nobody else is served, and hundreds
of bytes of memory, however small it is itself."""
_READ_DEEPLY = ("messages", "tools", "response_format")
_NO_SEPARATORS = bytes(set(range(256)) - set(b'",'))

_items = msgspec.json.Decoder(list[Raw] | None)
_object = msgspec.json.Decoder(dict[str, Raw])
_objects = msgspec.json.Decoder(list[dict[str, Raw]] | None)
_string = msgspec.json.Decoder(str)
_name = msgspec.json.Decoder(str | None)
_flag = msgspec.json.Decoder(bool | None)
_number = msgspec.json.Decoder(int | float)


def read_request(body: bytes) -> ChatRequest:
    """Read a chat completion request.

    Raises InvalidRequest, naming the field that is wrong. `fields` of the result may point into
    `body` and keep it alive.
    """
    try:
        fields = _read_fields(body)
        if len(body) > MOST_VALUES:
            _refuse_floods(fields)
        model = _read_model(fields.get("model"))
        messages = _read_messages(fields.get("messages"))
        stream = _read_flag(fields.get("stream"), "stream")
        asks_for_usage = _read_include_usage(fields.get("stream_options"))
        return ChatRequest(
            model=model,
            fields=fields,
            messages=messages,
            stream=stream,
            wants_usage=stream and asks_for_usage,
            modalities=_modalities(messages),
        )
    except RecursionError:
        raise InvalidRequest("The request body is nested too deeply.") from None


def write_body(chat: ChatRequest, route: Route, priority: int | None = None) -> bytes:
    """Write the request as the route's upstream is to get it.

    A `priority` of the client's own does not get there: it would overtake others.

    The client's fields keep their bytes and order. The model becomes the upstream's name for it;
    a stream asks for usage unless the route does not take that; output bounds above the route's
    come down to it; the route's `extra_body` fills what the client left out.
    """
    fields: dict[str, Any] = dict(chat.fields)
    fields.pop("priority", None)
    for name, value in route.extra_body.items():
        if name not in fields and name not in _CORE_FIELDS:
            fields[name] = value
    fields["model"] = route.upstream_model
    if chat.stream and route.include_usage:
        fields["stream_options"] = _with_usage(fields.get("stream_options"))
    elif not chat.stream and "stream_options" not in chat.fields:
        fields.pop("stream_options", None)  # from `extra_body`, and wrong outside a stream
    if route.max_output_length is not None:
        for name in _OUTPUT_BOUNDS:
            if _exceeds(fields.get(name), route.max_output_length):
                fields[name] = route.max_output_length
    if priority is not None:
        fields["priority"] = priority
    return write_fields(fields)


def _read_fields(body: bytes) -> dict[str, Raw]:
    """The top level of the body, each value unread."""
    try:
        # msgspec skips over strings without looking at their encoding.
        body.decode()
        return read_fields(body)
    except UnicodeDecodeError:
        raise InvalidRequest("The request body is not valid UTF-8.") from None
    except msgspec.ValidationError:
        raise InvalidRequest("The request body must be a JSON object.") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.") from None


def _refuse_floods(fields: Mapping[str, Raw]) -> None:
    """Refuse very many values where each is read, before time and memory are spent on them."""
    for name in _READ_DEEPLY:
        raw = fields.get(name, b"")
        if memoryview(raw).nbytes > MOST_VALUES and _separators(bytes(raw)) > MOST_VALUES:
            raise InvalidRequest(
                f"The field '{name}' holds more than {MOST_VALUES} values.", param=name
            )


def _separators(value: bytes) -> int:
    """How many commas a JSON value has, not counting those inside strings."""
    commas = value.count(b",")
    if commas <= MOST_VALUES:
        return commas
    unescaped = value.replace(rb"\\", b"").replace(rb"\"", b"")
    outside = unescaped.translate(None, delete=_NO_SEPARATORS).split(b'"')[::2]
    return sum(map(len, outside))


def _read_model(raw: Raw | None) -> str:
    """The model's name."""
    try:
        model = None if raw is None else decode(_name, raw)
    except msgspec.ValidationError:
        raise InvalidRequest("The field 'model' must be a string.", param="model") from None
    if model is None:
        raise InvalidRequest("The field 'model' is missing.", param="model")
    if not model.strip():
        raise InvalidRequest("The field 'model' must not be empty.", param="model")
    return model


def _read_messages(raw: Raw | None) -> list[Message]:
    """The messages. Odd ones are passed over: the upstream may refuse them."""
    try:
        items = None if raw is None else _read_items(raw)
    except msgspec.ValidationError:
        raise InvalidRequest("The field 'messages' must be a list.", param="messages") from None
    if items is None:
        raise InvalidRequest("The field 'messages' is missing.", param="messages")
    return [_message_of(item) for item in items if isinstance(item, dict)]


def _message_of(fields: dict[str, Raw]) -> Message:
    content = fields.get("content")
    if content is None or not _starts(content, b"["):
        return Message(fields)
    return Message(fields, [_part_of(item) for item in _read_items(content) or ()])


def _part_of(item: dict[str, Raw] | Raw) -> Part:
    if isinstance(item, Raw):
        return Part(item, text=item if _starts(item, b'"') else None)
    kind, text = item.get("type"), item.get("text")
    return Part(
        item,
        type=decode(_string, kind) if kind is not None and _starts(kind, b'"') else "",
        text=text if text is not None and _starts(text, b'"') else None,
    )


def _read_items(raw: Raw) -> Sequence[dict[str, Raw] | Raw] | None:
    """The items of a list, objects by field: in one go when all are objects; `None` for null."""
    try:
        return decode(_objects, raw)
    except msgspec.ValidationError:
        items = decode(_items, raw) or ()
        return [decode(_object, item) if _starts(item, b"{") else item for item in items]


def _read_flag(raw: Raw | None, name: str) -> bool:
    """A boolean field; absent and null are false."""
    if raw is None:
        return False
    try:
        return bool(decode(_flag, raw))
    except msgspec.ValidationError:
        raise InvalidRequest(f"The field '{name}' must be a boolean.", param=name) from None


def _read_include_usage(raw: Raw | None) -> bool:
    """Whether `stream_options` asks for the usage chunk."""
    if raw is None or _starts(raw, b"n"):
        return False
    if not _starts(raw, b"{"):
        raise InvalidRequest(
            "The field 'stream_options' must be an object.", param="stream_options"
        )
    include_usage = read_fields(raw).get("include_usage")
    return _read_flag(include_usage, "stream_options.include_usage")


def _modalities(messages: Sequence[Message]) -> frozenset[str]:
    """The kinds of non-text input."""
    kinds = {_MODALITY_OF_PART.get(part.type) for one in messages for part in one.parts}
    return frozenset(filter(None, kinds))


def _with_usage(options: Any) -> dict[str, Any]:
    """The given stream options plus the wish for usage."""
    if isinstance(options, Raw):
        options = read_fields(options) if _starts(options, b"{") else {}
    return {**(options or {}), "include_usage": True}


def _exceeds(value: Any, limit: int) -> bool:
    """Whether a field's value is a number above the limit."""
    if isinstance(value, Raw):
        try:
            value = decode(_number, value)
        except msgspec.ValidationError:
            return False
    return isinstance(value, int | float) and value > limit


def _starts(raw: Raw, first: bytes) -> bool:
    """Whether the JSON value starts with this byte, which tells its type."""
    return memoryview(raw)[0] == first[0]
