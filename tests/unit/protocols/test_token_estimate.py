"""How large a prompt is taken to be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.openai_chat import read_request
from gateway.protocols.token_estimate import estimate_tokens


def estimate(messages: Any = (), **fields: Any) -> int:
    body = {"model": "m", "messages": list(messages), **fields}
    return estimate_tokens(read_request(json.dumps(body).encode()))


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def as_the_rules_say(body: dict[str, Any]) -> int:
    total = 0
    for message in body["messages"]:
        if not isinstance(message, dict):
            continue
        total += content_size(message.get("content"))
        extra = {
            name: value
            for name, value in message.items()
            if name not in ("role", "content") and value is not None
        }
        total += len(json.dumps(extra)) if extra else 0
    for name in ("tools", "response_format"):
        total += len(json.dumps(body[name])) if body.get(name) else 0
    return total // 4


def content_size(content: Any) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return len(content.encode())
    if isinstance(content, list):
        return sum(map(block_size, content))
    return len(str(content))


def block_size(block: Any) -> int:
    if isinstance(block, str):
        return len(block.encode())
    if isinstance(block, dict):
        if block.get("type") in ("image", "image_url"):
            return 85 * 4
        if block.get("type") in ("audio", "input_audio"):
            return 200 * 4
        if isinstance(block.get("text"), str):
            return len(block["text"].encode())
    return len(json.dumps(block))


texts = st.text(max_size=12) | st.sampled_from(['\\"', "\\u0041", "\x7f", "é\n", "汉字", "🙂", "/"])
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    plain | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from(["text", "image", "image_url", "audio", "input_audio", "file", "", "x"])
blocks = (
    st.fixed_dictionaries({"type": kinds}, optional={"text": texts | anything, "more": anything})
    | texts
    | anything
)
messages = (
    st.fixed_dictionaries(
        {},
        optional={
            "role": texts,
            "content": texts | st.lists(blocks, max_size=4) | anything,
            "name": texts | st.none(),
            "tool_calls": st.lists(anything, max_size=2),
        },
    ).flatmap(lambda known: st.dictionaries(texts, anything, max_size=2).map(lambda m: m | known))
    | anything
)
bodies = st.fixed_dictionaries(
    {"model": st.just("m"), "messages": st.lists(messages, max_size=5)},
    optional={"tools": anything, "response_format": anything, "metadata": anything},
)


@given(
    body=bodies,
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
    separators=st.sampled_from([None, (",", ":")]),
)
@settings(deadline=None)
def test_any_body_counts_by_the_rules_however_it_is_written(
    body: dict[str, Any], ascii_only: bool, indent: int | None, separators: Any
) -> None:
    text = json.dumps(body, ensure_ascii=ascii_only, indent=indent, separators=separators)
    assert estimate_tokens(read_request(text.encode())) == as_the_rules_say(body)


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ([], 0),
        ([user("x" * 400)], 100),
        ([user("x" * 40), user("y" * 40)], 20),
        ([user("汉" * 400)], 300),
        ([user(None)], 0),
        ([None, 5, {"role": "user"}], 0),
        ([user([{"type": "image_url", "image_url": {"url": "x" * 9999}}, "hi"])], 85),
        ([user([{"type": "input_audio", "input_audio": {}}])], 200),
        ([user([{"type": "text", "text": "x" * 400, "cache_control": {}}])], 100),
    ],
)
def test_text_counts_by_its_bytes_and_media_by_their_kind(given: list[Any], tokens: int) -> None:
    assert estimate(given) == tokens


def test_tools_and_the_response_format_count_and_other_fields_do_not() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"x": 1.50}}}]
    schema = {"type": "json_schema", "json_schema": {"name": "s"}}
    size = len(json.dumps(tools)) + len(json.dumps(schema))

    assert estimate(tools=tools, response_format=schema, user="x" * 400) == size // 4


def test_what_a_message_has_besides_role_and_content_counts() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"path": "é"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}

    assert estimate([message]) == len(json.dumps({"tool_calls": [call]})) // 4


@pytest.mark.parametrize("size", [1, 1_000, 2_000, 200_000])
@pytest.mark.parametrize("calls", [1, 2], ids=["new", "known"])
def test_tools_of_any_size_count_alike_when_they_come_again(size: int, calls: int) -> None:
    tools = [{"description": 'é"' * size}]
    counted = [estimate(tools=tools) for _ in range(calls)]
    assert counted == [len(json.dumps(tools)) // 4] * calls


@pytest.mark.parametrize("value", ["null", "[ ]", "{ }", '""', "0", "-0", "0.000000", "false"])
def test_options_that_say_nothing_count_nothing(value: str) -> None:
    body = f'{{"model":"m","messages":[],"tools":{value},"response_format":{value}}}'
    chat = read_request(body.encode())
    assert estimate_tokens(chat) == 0


def test_half_an_emoji_counts_as_one_character() -> None:
    content = r"\ud83d" * 4
    for name, size in (("content", 3 * 4), ("name", len(f'{{"name": "{content}"}}'))):
        body = f'{{"model":"m","messages":[{{"role":"user","{name}":"{content}"}}]}}'
        assert estimate_tokens(read_request(body.encode())) == size // 4


@pytest.mark.parametrize(
    "value", ["[" * 900 + "]" * 900, "9" * 5000], ids=["deep nesting", "a long number"]
)
@pytest.mark.parametrize("field", ["tools", "content", "name"])
def test_what_python_will_not_write_never_fails(field: str, value: str) -> None:
    message, option = (value, "null") if field != "tools" else ("null", value)
    name = field if field != "tools" else "content"
    body = f'{{"model":"m","messages":[{{"{name}":{message}}}],"tools":{option}}}'
    assert estimate_tokens(read_request(body.encode())) >= 0
