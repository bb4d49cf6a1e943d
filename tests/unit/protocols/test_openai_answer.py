"""Chat answers: what a chunk says, odd ones included, and the model's name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.request import Usage
from gateway.protocols.openai_answer import (
    Chunk,
    MalformedAnswer,
    read_chunk,
    read_completion,
    splice_model,
)


def chunk(**fields: Any) -> Chunk:
    return read_chunk(json.dumps(fields).encode())


def delta(**fields: Any) -> Chunk:
    return chunk(choices=[{"index": 0, "delta": fields, "finish_reason": None}])


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "x"},
        {"content": " "},
        {"content": [{"type": "text", "text": "x"}]},
        {"refusal": "no"},
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"thinking": "hm"},
        {"tool_calls": [{"index": 0, "function": {"name": "f"}}]},
        {"function_call": {"name": "f"}},
        {"audio": {"id": "a"}},
        {"images": [{"type": "image_url"}]},
        {"annotations": [{"type": "url_citation"}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_real_output_is_seen(fields: dict[str, Any]) -> None:
    assert delta(**fields).has_output
    whole = {"choices": [{"message": {"role": "assistant", **fields}}]}
    assert read_completion(json.dumps(whole).encode()).has_output


@pytest.mark.parametrize(
    "fields",
    [{}, {"role": "assistant"}, {"content": ""}, {"content": None, "tool_calls": []}, {"x": "y"}],
)
def test_roles_and_empty_values_are_no_output(fields: dict[str, Any]) -> None:
    assert not delta(**fields).has_output


def test_finish_reasons_come_by_choice() -> None:
    seen = chunk(
        choices=[
            {"index": 1, "delta": {}, "finish_reason": "stop"},
            {"index": 0, "delta": {}, "finish_reason": None},
            {"index": 2, "delta": {}, "finish_reason": ""},
        ]
    )

    assert seen.choices == (1, 0, 2)
    assert seen.finish_reasons == {1: "stop"}


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 4}}, 4),
        ({"prompt_tokens_details": None}, 0),
        ({"prompt_cache_hit_tokens": 4}, 4),
        ({"cached_tokens": 4}, 4),
        ({"prompt_tokens_details": {"cached_tokens": "4"}}, 0),
    ],
)
def test_usage_is_read_where_providers_put_it(usage: dict[str, Any], cached: int) -> None:
    seen = chunk(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 2, **usage})

    assert seen.usage == Usage(prompt_tokens=9, completion_tokens=2, cached_tokens=cached)
    assert seen.usage_only


def test_a_chunk_with_choices_or_without_usage_is_not_the_usage_chunk() -> None:
    assert not chunk(choices=[{"delta": {}}], usage={"prompt_tokens": 1}).usage_only
    assert not chunk(choices=[], usage=None, prompt_filter_results=[]).usage_only


@pytest.mark.parametrize(
    "body",
    [
        {"choices": None},
        {"choices": {}},
        {"choices": "x"},
        {"choices": [None, 4, "x"]},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 0, "delta": []}]},
        {"choices": [{"index": "0", "delta": {"content": 0}}]},
        {"model": 4, "usage": "many", "error": None},
        {"usage": {"prompt_tokens": -3, "completion_tokens": "x"}},
    ],
)
def test_odd_values_are_treated_as_absent(body: dict[str, Any]) -> None:
    seen = read_chunk(json.dumps(body).encode())

    assert not seen.has_output
    assert seen.error is None
    assert seen.model is None


def test_one_odd_choice_does_not_hide_the_others() -> None:
    seen = chunk(
        model="m",
        choices=[{"index": 0, "delta": 3}, 7, {"index": 1, "delta": {"content": "x"}}],
        usage={"prompt_tokens": 1},
    )

    assert seen.has_output
    assert seen.choices == (0, 1)
    assert (seen.model, seen.usage) == ("m", Usage(prompt_tokens=1))


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"hello", b"[]", b"3", b"null", b'{"choices": [' + b"[" * 100_000],
    ids=["empty", "cut", "text", "list", "number", "null", "deep"],
)
def test_what_is_not_an_object_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        read_chunk(data)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"error": {"message": "m", "code": 529}}, 529, "m"),
        ({"error": {"message": "m", "code": "429"}}, 429, "m"),
        ({"error": {"message": "m", "code": "rate_limit_exceeded"}}, 429, "m"),
        ({"error": {"message": "m", "type": "server_error", "code": None}}, 500, "m"),
        ({"error": {"message": "m", "type": "invalid_request_error"}}, 400, "m"),
        ({"error": {"message": "m", "code": "context_length_exceeded"}}, 400, "m"),
        ({"error": {"message": "m", "type": "authentication_error"}}, 401, "m"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, 529, "m"),
        ({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, 400, "m"),
        ({"error": {"message": "m", "status": "INVALID_ARGUMENT"}}, 400, "m"),
        ({"error": "m"}, None, "m"),
        ({"error": {"message": "m", "code": 200}}, None, "m"),
        ({"error": {"message": "m", "code": 10**30}}, None, "m"),
        ({"error": {"code": "9" * 5000}}, None, None),
        ({"error": True}, None, None),
    ],
)
def test_an_error_in_place_of_an_answer_is_read(
    body: dict[str, Any], status: int | None, message: str | None
) -> None:
    for seen in (chunk(**body), read_completion(json.dumps(body).encode())):
        assert seen.error is not None
        assert (seen.error.status, seen.error.message) == (status, message)


@pytest.mark.parametrize(
    ("data", "spliced"),
    [
        (b'{"model":"up","choices":[]}', b'{"model":"pub","choices":[]}'),
        (b'{"id":"x", "model" : "u\\"p", "a":1}', b'{"id":"x", "model" : "pub", "a":1}'),
        (b'{"object":"model","model":"up"}', b'{"object":"model","model":"pub"}'),
        (b'{"a":{"model":"x"},"model":"up"}', b'{"a":{"model":"x"},"model":"pub"}'),
        (b'{"choices":[{"c":"\\"model\\":\\"z\\""}],"model":"up"}', None),
        (b'{"mod\\u0065l":"up"}', b'{"model":"pub"}'),
    ],
)
def test_the_model_is_spliced_where_it_differs(data: bytes, spliced: bytes | None) -> None:
    got = splice_model(data, "pub")

    assert json.loads(got) == {**json.loads(data), "model": "pub"}
    if spliced is not None:
        assert got == spliced


@pytest.mark.parametrize(
    "data",
    [b'{"model":"pub"}', b'{"id":1}', b'{"a":{"model":"x"}}', b'{"model":null}', b'{"a":"model"}'],
)
def test_without_a_difference_the_same_bytes_come_back(data: bytes) -> None:
    assert splice_model(data, "pub") is data


def test_a_model_name_with_quotes_is_escaped() -> None:
    assert json.loads(splice_model(b'{"model":"x"}', 'a"b\\')) == {"model": 'a"b\\'}
