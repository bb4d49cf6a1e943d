"""Chat requests: what is refused, what is read, what goes upstream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.request import ChatRequest
from gateway.core.route import Route
from gateway.errors import InvalidRequest
from gateway.protocols.openai_chat import MOST_VALUES, read_request, write_body


def chat(**fields: Any) -> ChatRequest:
    return read_request(json.dumps({"model": "public", "messages": [], **fields}).encode())


def route(**fields: Any) -> Route:
    values = {"model_id": "public", "location": "a", "provider": "p", "kind": "vllm"}
    return Route(**{**values, "base_url": "http://a/v1", "upstream_model": "theirs", **fields})


def sent(request: ChatRequest, to: Route) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(write_body(request, to))
    return body


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b"", None, "not valid JSON"),
        (b"{", None, "not valid JSON"),
        (b'{"model": NaN}', None, "not valid JSON"),
        (b'{"model": "\xff"}', None, "not valid UTF-8"),
        (b'{"x": "\xc3\x28"}', None, "not valid UTF-8"),
        (b"[]", None, "must be a JSON object"),
        (b"null", None, "must be a JSON object"),
        (b'{"messages": []}', "model", "missing"),
        (b'{"model": null, "messages": []}', "model", "missing"),
        (b'{"model": "", "messages": []}', "model", "empty"),
        (b'{"model": " ", "messages": []}', "model", "empty"),
        (b'{"model": 4, "messages": []}', "model", "string"),
        (b'{"model": "m"}', "messages", "missing"),
        (b'{"model": "m", "messages": "hi"}', "messages", "list"),
        (b'{"model": "m", "messages": [], "stream": "yes"}', "stream", "boolean"),
        (b'{"model": "m", "messages": [], "stream_options": 1}', "stream_options", "object"),
        (
            b'{"model": "m", "messages": [], "stream_options": {"include_usage": 1}}',
            "stream_options.include_usage",
            "boolean",
        ),
    ],
)
def test_a_wrong_body_is_refused_by_the_field(body: bytes, param: str | None, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        read_request(body)

    assert refused.value.param == param
    assert refused.value.status == 400


@pytest.mark.parametrize("name", ["messages", "tools", "stream_options"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["list", "map"])
def test_deep_nesting_is_refused(name: str, opening: str, closing: str) -> None:
    value = opening * 100_000 + "1" + closing * 100_000
    body = f'{{"model": "m", "messages": [], "{name}": {value}}}'.encode()

    with pytest.raises(InvalidRequest, match="nested too deeply"):
        read_request(body)


@pytest.mark.parametrize("value", [b"{}", b"1", b'""', rb'"\\"', rb'"\",\""', b'{"content":[]}'])
@pytest.mark.parametrize("field", [b"messages", b"tools", b"response_format"])
def test_a_flood_of_values_is_refused_whatever_they_are(value: bytes, field: bytes) -> None:
    def body(count: int) -> bytes:
        return b'{"model":"m","messages":[],"%b":[%b]}' % (field, b",".join([value] * count))

    with pytest.raises(InvalidRequest, match=f"more than {MOST_VALUES} values") as refused:
        read_request(body(MOST_VALUES + 2))
    assert refused.value.param == field.decode()
    read_request(body(MOST_VALUES))


@pytest.mark.parametrize("text", ["a,", '",', '\\",', "\\,"])
def test_a_long_text_is_one_value_whatever_it_holds(text: str) -> None:
    content = text * (MOST_VALUES + 1)
    assert chat(messages=[{"role": "user", "content": content}]).messages


def test_the_fields_acted_on_are_read() -> None:
    request = chat(stream=True, stream_options={"include_usage": True})

    assert (request.model, request.stream, request.wants_usage) == ("public", True, True)


def test_nulls_count_as_absent() -> None:
    request = chat(stream=None, stream_options=None)

    assert (request.stream, request.wants_usage) == (False, False)


@pytest.mark.parametrize(
    ("kind", "modality"),
    [
        ("image_url", "image"),
        ("image", "image"),
        ("input_image", "image"),
        ("input_audio", "audio"),
        ("audio", "audio"),
        ("video_url", "video"),
        ("input_video", "video"),
        ("file", "file"),
        ("input_file", "file"),
    ],
)
def test_content_parts_tell_the_modality(kind: str, modality: str) -> None:
    parts = [{"type": "text", "text": "image"}, {"type": kind, kind: {"url": "data:"}}]

    assert chat(messages=[{"role": "user", "content": parts}]).modalities == {modality}


def test_odd_messages_are_passed_over() -> None:
    parts = [3, {"type": 4}, None]
    odd: list[Any] = [None, 5, {"role": "user"}, {"content": {}}, {"content": parts}]
    good = {"content": [{"type": "image_url"}, {"type": ["image"]}]}

    assert chat(messages=odd).modalities == frozenset()
    assert chat(messages=[*odd, good]).modalities == {"image"}


def test_a_text_that_names_a_modality_is_text() -> None:
    assert chat(messages=[{"content": '[{"type": "image_url"}]'}]).modalities == frozenset()


def test_messages_are_read_by_field_and_no_deeper() -> None:
    content = [{"type": "text", "text": "a"}, "b", 3, {"type": 4, "text": None}]
    calls = [{"id": "1"}]
    messages: list[Any] = [
        {"role": "user", "content": content},
        7,
        {"role": "assistant", "content": None, "tool_calls": calls, "refusal": None},
        {},
    ]

    user, assistant, empty = chat(messages=messages).messages

    assert [(part.type, part.text and bytes(part.text)) for part in user.parts] == [
        ("text", b'"a"'),
        ("", b'"b"'),
        ("", None),
        ("", None),
    ]
    assert (user.role, assistant.role, empty.role) == (b'"user"', b'"assistant"', b"null")
    assert json.loads(bytes(user.content or b"")) == content
    assert (assistant.content, assistant.parts, empty.content) == (None, (), None)
    assert [(name, json.loads(bytes(raw))) for name, raw in assistant.others()] == [
        ("tool_calls", calls)
    ]


def test_a_type_is_known_however_it_is_escaped() -> None:
    body = rb'{"model":"m","messages":[{"content":[{"type":"\u0069mage_url"}]}]}'

    assert read_request(body).modalities == {"image"}


def test_fields_keep_their_bytes_and_order() -> None:
    messages = b'"messages":[{"content": "\\u00e9 \xc3\xa9"}]'
    body = b'{"model":"public",' + messages + b',"seed":1e2,"x":{"b":1,"a": 2}}'

    assert write_body(read_request(body), route()) == body.replace(b"public", b"theirs")


def test_a_stream_asks_for_usage_beside_the_callers_options() -> None:
    request = chat(stream=True, stream_options={"include_obfuscation": False})

    assert sent(request, route())["stream_options"] == {
        "include_obfuscation": False,
        "include_usage": True,
    }
    assert request.wants_usage is False


def test_a_route_without_usage_gets_the_callers_options_untouched() -> None:
    plain = route(include_usage=False)

    assert "stream_options" not in sent(chat(stream=True), plain)
    assert sent(chat(stream=True, stream_options={"x": 1}), plain)["stream_options"] == {"x": 1}


def test_a_whole_answer_is_not_asked_for_stream_usage() -> None:
    assert "stream_options" not in sent(chat(), route(extra_body={"stream_options": {"x": 1}}))


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("asked", "sent_value"),
    [(99, 99), (100, 100), (101, 100), (1e9, 100), (None, None), ("9999", "9999")],
)
def test_output_bounds_come_down_to_the_routes(name: str, asked: Any, sent_value: Any) -> None:
    assert sent(chat(**{name: asked}), route(max_output_length=100))[name] == sent_value


def test_an_absent_output_bound_stays_absent() -> None:
    assert sent(chat(), route(max_output_length=100)) == {"model": "theirs", "messages": []}


def test_extra_body_fills_only_what_the_client_left_out() -> None:
    extra = {"top_k": 3, "seed": 4, "model": "no", "messages": 5, "stream": True}

    assert sent(chat(seed=1), route(extra_body=extra)) == {
        "model": "theirs",
        "messages": [],
        "seed": 1,
        "top_k": 3,
    }


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1e999", "0.1e-999"])
def test_a_number_of_any_size_goes_upstream_as_it_is_written(number: str) -> None:
    body = f'{{"model":"theirs","messages":[],"seed":{number},"max_tokens":{number}}}'.encode()

    assert write_body(read_request(body), route(max_output_length=100)) == body
