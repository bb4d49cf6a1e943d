"""The engine's answers and their shapes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gateway.engine.generate import Identity, answer, completion, frames
from gateway.engine.request import ChatRequest

IDENTITY = Identity(id="chatcmpl-1", created=7, model="m", system_fingerprint="engine-a")
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}


def chat(content: Any = "hello", **fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    return msgspec.convert(body, ChatRequest)


def streamed(request: ChatRequest) -> list[dict[str, Any]]:
    events = frames(request, answer(request, 4), IDENTITY)
    assert events[-1].data == b"data: [DONE]\n\n"
    return [json.loads(event.data.removeprefix(b"data: ")) for event in events[:-1]]


@pytest.mark.parametrize(
    ("fields", "text", "finish_reason"),
    [
        ({}, "tok0 tok1 tok2 tok3", "stop"),
        ({"max_tokens": 2}, "tok0 tok1", "length"),
        ({"max_completion_tokens": 1, "max_tokens": 3}, "tok0", "length"),
        ({"max_tokens": 4}, "tok0 tok1 tok2 tok3", "stop"),
        ({"max_tokens": 9}, "tok0 tok1 tok2 tok3", "stop"),
    ],
    ids=["uncapped", "capped", "newer-cap-wins", "cap-met", "cap-above"],
)
def test_output_is_capped_as_the_client_asks(
    fields: dict[str, Any], text: str, finish_reason: str
) -> None:
    given = answer(chat(**fields), 4)

    assert "".join(given.tokens) == text
    assert given.finish_reason == finish_reason


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("x" * 400, 100),
        ("x" * 401, 101),
        ("", 1),
        ([{"type": "text", "text": "x" * 8}, {"type": "image_url", "image_url": {}}], 2),
        (None, 1),
    ],
    ids=["exact", "rounded-up", "empty", "parts", "absent"],
)
def test_prompt_tokens_are_a_quarter_of_the_text(content: Any, tokens: int) -> None:
    assert chat(content).prompt_tokens == tokens


def test_completion_names_model_engine_and_usage() -> None:
    request = chat("x" * 40)

    whole = completion(request, answer(request, 4), IDENTITY)

    assert whole["object"] == "chat.completion"
    assert (whole["model"], whole["system_fingerprint"]) == ("m", "engine-a")
    assert whole["choices"][0]["message"] == {
        "role": "assistant",
        "content": "tok0 tok1 tok2 tok3",
    }
    assert whole["usage"] == {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}


def test_stream_opens_with_the_role_and_closes_with_the_finish() -> None:
    chunks = streamed(chat())

    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [delta.get("content") for delta in deltas[1:-1]] == ["tok0", " tok1", " tok2", " tok3"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 5 + ["stop"]
    assert not any("usage" in chunk for chunk in chunks)


def test_stream_ends_with_usage_when_asked() -> None:
    chunks = streamed(chat(stream_options={"include_usage": True}))

    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 6
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 4


def test_tool_call_carries_the_required_arguments() -> None:
    request = chat("Please use a tool.", tools=[WEATHER])

    choice = completion(request, answer(request, 4), IDENTITY)["choices"][0]

    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "tok0", "days": 0}


def test_streamed_tool_call_arrives_in_parts() -> None:
    chunks = streamed(chat("use a tool", tools=[WEATHER]))

    calls = [chunk["choices"][0]["delta"]["tool_calls"][0] for chunk in chunks[:-1]]
    assert calls[0]["id"]
    assert calls[0]["function"] == {"name": "weather", "arguments": ""}
    assert len(calls) > 2
    assert not any("id" in call for call in calls[1:])
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments) == {"city": "tok0", "days": 0}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_tools_without_the_phrase_are_answered_in_words() -> None:
    request = chat("hello", tools=[WEATHER])

    assert answer(request, 4).tool is None
