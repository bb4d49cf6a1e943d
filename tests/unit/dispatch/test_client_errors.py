"""What a client gets to see of an upstream's error."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from gateway.core.route import Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.failures import from_response


def failure(route: Route, status: int, body: Any = None, **headers: str) -> UpstreamFailure:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return from_response(route, httpx.Response(status, headers=named), content)


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422, 429])
def test_the_upstreams_fields_are_kept(route: Route, status: int) -> None:
    body = {"error": {"message": "Bad.", "type": "t_e", "code": "c-1", "param": "messages[0].x"}}

    error = failure(route, status, body).to_client("public")

    assert (error.message, error.type, error.code) == ("Bad.", "t_e", "c-1")
    assert error.param == "messages[0].x"


def test_fields_are_not_kept_elsewhere_nor_when_odd(route: Route) -> None:
    named = {"error": {"message": "m", "type": "t", "code": "c", "param": "p"}}
    odd = {"error": {"message": "m", "type": 3, "code": "two words", "param": {}}}

    for error in (failure(route, 500, named), failure(route, 400, odd)):
        shown = error.to_client("public")
        assert (shown.code, shown.param) == ("upstream_error", None)


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad Gateway</html>", b"\xff\xfe", b"{}", b"[1]", b'{"error": {}}']
)
def test_without_usable_words_the_sentence_is_ours(route: Route, body: bytes) -> None:
    error = failure(route, 503, body).to_client("public")

    assert error.message == "The upstream answered with status 503."


def test_a_plain_text_error_is_passed_on(route: Route) -> None:
    assert failure(route, 503, b"no slots\n").to_client("public").message == "no slots"


def test_neither_hosts_nor_keys_nor_the_providers_name_are_shown(route: Route) -> None:
    secret = replace(route, base_url="http://gpu7.rack:8000/v1", upstream_model="org/theirs-7b")
    message = (
        "Model org/theirs-7b at https://api.provider.com/v1 (10.0.0.5:8000, gpu7.rack:8000, "
        "[fe80::1]:80, vllm-0.pool.svc.cluster.local) key sk-abcdef123456 sekrit-key Bearer abc"
    )

    failed = failure(secret, 400, {"error": {"message": message, "param": "at 10.0.0.5"}})
    error = failed.to_client("public")

    assert error.message == (
        "Model public at [url] ([host], [host], [host], [host]) key [key] [key] Bearer [key]"
    )
    assert error.param == "at [host]"
    assert "sekrit" not in str(failed)
    assert "10.0.0.5" not in str(failed)


@pytest.mark.parametrize(
    "message",
    [
        "Invalid value at messages.0.content: expected str, resets at 12:30:45.",
        "gpt-4.1 takes at most 1.5 of qwen2.5:14b, max_tokens:4096",
    ],
)
def test_ordinary_words_stay(route: Route, message: str) -> None:
    assert failure(route, 400, {"error": {"message": message}}).to_client("m").message == message


def test_a_model_whose_name_begins_like_ours_stays(route: Route) -> None:
    message = "theirs-large is not theirs. Use theirs"

    shown = failure(route, 404, {"error": {"message": message}}).to_client("public").message

    assert shown == "theirs-large is not public. Use public"


def test_a_message_is_one_bounded_line(route: Route) -> None:
    message = failure(route, 400, {"error": {"message": "a\nb\x00" + "y " * 900}}).to_client("m")

    assert message.message.startswith("a b y")
    assert len(message.message) <= 500
    assert message.message.isprintable()
