"""What the engine answers: tokens, tool calls and their OpenAI shapes. Pure; no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.engine.request import ChatRequest

SAMPLES: Mapping[str, Any] = {
    "string": "tok0",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
}
"""What a required argument of a JSON type is filled with."""


class Answer(Struct, frozen=True, kw_only=True):
    """The tokens of one answer: text, or the arguments of a call of `tool`."""

    tokens: tuple[str, ...]
    finish_reason: str
    tool: str | None = None


class Identity(Struct, frozen=True, kw_only=True):
    """What all chunks of one answer have in common."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class Frame(Struct):
    """One event of a stream; `paced` ones come no faster than tokens are produced."""

    data: bytes
    paced: bool = False


def answer(request: ChatRequest, output_tokens: int) -> Answer:
    """Make up the answer to `request`: `output_tokens` words, or a tool call where asked for."""
    tool, finish_reason = request.wanted_tool, "stop"
    if tool is None:
        tokens = ("tok0", *(f" tok{n}" for n in range(1, output_tokens)))[:output_tokens]
    else:
        finish_reason = "tool_calls"
        arguments = msgspec.json.encode(_arguments(tool.parameters)).decode()
        tokens = tuple(arguments[at : at + 4] for at in range(0, len(arguments), 4))
    if request.limit is not None and request.limit < len(tokens):
        tokens, finish_reason = tokens[: request.limit], "length"
    return Answer(
        tokens=tokens, finish_reason=finish_reason, tool=None if tool is None else tool.name
    )


def completion(request: ChatRequest, given: Answer, identity: Identity) -> dict[str, Any]:
    """The whole answer as one `chat.completion` object."""
    text = "".join(given.tokens)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if given.tool is not None:
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [_tool_call(identity, given.tool, text)],
        }
    return {
        **msgspec.structs.asdict(identity),
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": given.finish_reason}],
        "usage": _usage(request, given),
    }


def frames(request: ChatRequest, given: Answer, identity: Identity) -> list[Frame]:
    """The answer as the events of a stream: the role, each token, the finish, usage, `[DONE]`."""
    wants_usage = request.stream_options is not None and request.stream_options.include_usage
    common = {**msgspec.structs.asdict(identity), "object": "chat.completion.chunk"}
    if wants_usage:
        common["usage"] = None

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return event({**common, "choices": [choice]})

    if given.tool is None:
        events = [Frame(chunk({"role": "assistant", "content": ""}))]
        events += [Frame(chunk({"content": token}), paced=True) for token in given.tokens]
    else:
        call = {"index": 0, **_tool_call(identity, given.tool, "")}
        events = [Frame(chunk({"role": "assistant", "content": None, "tool_calls": [call]}))]
        for token in given.tokens:
            part = {"index": 0, "function": {"arguments": token}}
            events.append(Frame(chunk({"tool_calls": [part]}), paced=True))
    events.append(Frame(chunk({}, given.finish_reason)))
    if wants_usage:
        events.append(Frame(event({**common, "choices": [], "usage": _usage(request, given)})))
    events.append(Frame(b"data: [DONE]\n\n"))
    return events


def event(data: Any) -> bytes:
    """One server-sent event holding `data` as JSON."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def error(
    message: str, *, type: str = "invalid_request_error", code: str | None = None
) -> dict[str, Any]:
    """An error in OpenAI's shape."""
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def _arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    return {
        name: SAMPLES.get(properties.get(name, {}).get("type", "string"))
        for name in schema.get("required") or ()
    }


def _tool_call(identity: Identity, name: str, arguments: str) -> dict[str, Any]:
    called = {"name": name, "arguments": arguments}
    return {"id": f"call_{identity.id}", "type": "function", "function": called}


def _usage(request: ChatRequest, given: Answer) -> dict[str, int]:
    prompt, output = request.prompt_tokens, len(given.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
