"""Lone surrogate escapes: what was cut inside an emoji goes through as it is written."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.route import Route
from gateway.errors import InvalidRequest
from gateway.protocols.error_body import read_error
from gateway.protocols.lone_escapes import decode, read_fields, write_fields
from gateway.protocols.openai_answer import (
    MalformedAnswer,
    read_chunk,
    read_completion,
    splice_model,
)
from gateway.protocols.openai_chat import read_request, write_body

HIGH, LOW = r"\ud83d", r"\uDE00"
LONE = [HIGH, LOW, LOW + HIGH, HIGH + HIGH, HIGH + r"\n", HIGH + r"\u0041", r"\\" + HIGH + r"\\"]
PIECES = [HIGH, LOW, r"\\", r"\n", r"\"", "ud83d", "x", r"\u0041", r"\uD800", r"\udfff", "é"]
_values = msgspec.json.Decoder()
strings = st.lists(st.sampled_from(PIECES), max_size=8).map(lambda parts: f'"{"".join(parts)}"')


def route(**fields: Any) -> Route:
    values = {"model_id": "m", "location": "a", "provider": "p", "kind": "vllm"}
    return Route(**{**values, "base_url": "http://a/v1", "upstream_model": "theirs", **fields})


def whole(value: Any) -> Any:
    """The value with U+FFFD in place of lone surrogates."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(re.sub("[\ud800-\udfff]", "\ufffd", text))


@given(name=strings, value=strings)
def test_any_string_is_kept_as_written_and_read_as_json_says(name: str, value: str) -> None:
    inner = f"{{{name}: [{value}]}}"
    text = f'{{{name}:{value},"z":{inner},"n":1e2}}'

    fields = read_fields(text.encode())

    assert bytes(fields["z"]) == inner.encode()
    assert bytes(fields["n"]) == b"1e2"
    assert json.loads(write_fields(fields)) == json.loads(text)
    assert decode(_values, inner.encode()) == whole(json.loads(inner))


@pytest.mark.parametrize("text", LONE)
def test_a_request_goes_upstream_as_it_was_written(text: str) -> None:
    messages = f'[{{"role": "user","content":"hello {text} and"}}]'
    body = f'{{"model":"m","messages":{messages},"{text}":1,"user":"{text}","seed":1e2}}'.encode()

    sent = write_body(read_request(body), route())

    assert json.loads(sent) == {**json.loads(body), "model": "theirs"}
    assert f'"messages":{messages}'.encode() in sent


def test_the_fields_acted_on_are_read_beside_a_lone_escape() -> None:
    odd = f'{{"{HIGH}":"{LOW}","include_usage":true}}'
    part = f'{{"type":"image_url","{LOW}":"{HIGH}"}}'
    messages = f'[{{"content":[{{"type":"{HIGH}"}},{part}]}},"{LOW}"]'
    body = f'{{"model":"{HIGH}","messages":{messages},"stream":true,"stream_options":{odd}'
    body += f',"max_tokens":"{HIGH}","max_completion_tokens":9}}'

    request = read_request(body.encode())
    sent = json.loads(write_body(request, route(max_output_length=5)))

    assert request.model == "\ufffd"
    assert (request.stream, request.wants_usage) == (True, True)
    assert request.modalities == {"image"}
    assert sent["stream_options"] == json.loads(odd)
    assert (sent["max_tokens"], sent["max_completion_tokens"]) == ("\ud83d", 5)


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", "01", r'"\u12"', r'"\x"', '"', r'"\ud83"', r'"\\\"', "[1,]"],
)
def test_what_is_no_json_stays_refused_beside_a_lone_escape(value: str) -> None:
    body = f'{{"model":"m","messages":["{HIGH}"],"x":{value}}}'.encode()

    with pytest.raises(InvalidRequest, match="not valid JSON"):
        read_request(body)
    with pytest.raises(MalformedAnswer):
        read_chunk(body)


@pytest.mark.parametrize("name", ["x", "messages", "stream_options"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["list", "map"])
def test_deep_nesting_stays_refused_beside_a_lone_escape(
    name: str, opening: str, closing: str
) -> None:
    value = opening * 100_000 + f'"{HIGH}"' + closing * 100_000
    body = f'{{"model": "m", "messages": [], "{name}": {value}}}'.encode()

    with pytest.raises(InvalidRequest, match="nested too deeply"):
        read_request(body)


def test_numbers_keep_their_digits_beside_a_lone_escape() -> None:
    body = f'{{"model":"theirs","messages":["{HIGH}"],"seed":{"9" * 5000},"top_p":1e999}}'.encode()

    assert write_body(read_request(body), route()) == body


@pytest.mark.parametrize("text", LONE)
def test_an_answer_is_read_beside_a_lone_escape(text: str) -> None:
    choice = f'{{"index":1,"%s":{{"content":"{text}"}},"finish_reason":"stop"}}'
    answer = f'{{"id":"{text}","choices":[{choice}],"usage":{{"prompt_tokens":3}},"model":"up"}}'
    odd = answer.replace('"choices":[', f'"choices":[3,"{text}",')

    for form in (answer, odd):
        chunk = read_chunk((form % "delta").encode())
        assert chunk == read_completion((form % "message").encode())
        assert chunk.has_output
        assert chunk.finish_reasons == {1: "stop"}
        assert chunk.usage is not None


@pytest.mark.parametrize("text", LONE)
def test_the_model_is_spliced_beside_a_lone_escape(text: str) -> None:
    choices = f'[{{"delta":{{"content":"{text}"}}}}]'.encode()
    first = b'{"model":"up","choices":' + choices + b"}"
    last = b'{"choices":' + choices + b',"model":"up"}'

    assert splice_model(first, "pub") == first.replace(b"up", b"pub")
    assert splice_model(last, "pub") == last.replace(b"up", b"pub")


def test_an_error_is_read_beside_a_lone_escape() -> None:
    error = read_error(f'{{"error":{{"message":"no {HIGH} here","code":429}}}}'.encode())

    assert error is not None
    assert (error.message, error.status) == ("no \ufffd here", 429)
