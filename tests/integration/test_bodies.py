"""Bodies too large, malformed or hostile are refused in our shape, and harm nobody else."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.cluster.harness import body
from tests.integration.conftest import MAX_BODY_BYTES, Gateway

PATH = "/v1/chat/completions"
DEPTH = 100_000


def error(answer: httpx.Response) -> dict[str, str | None]:
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    found = answer.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def sized(size: int) -> bytes:
    """A good request of exactly this many bytes."""
    empty = json.dumps(body("", model="alone")).encode()
    return empty.replace(b'"content": ""', b'"content": "' + b"x" * (size - len(empty)) + b'"')


async def chunked(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 4096):
        yield data[start : start + 4096]


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
async def test_a_body_over_the_cap_is_refused_and_one_at_the_cap_is_served(
    is_chunked: bool, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    for size, status in ((MAX_BODY_BYTES, 200), (MAX_BODY_BYTES + 1, 413), (10**6, 413)):
        data = sized(size)
        answer = await http.post(PATH, content=chunked(data) if is_chunked else data)
        assert answer.status_code == status
        if status == 413:
            assert error(answer)["code"] == "request_too_large"
            assert str(MAX_BODY_BYTES) in str(error(answer)["message"])
    assert gateway.asked == (1, 0)


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b"", None),
        (b"{", None),
        (b'{"model": "alone", "messages": [}', None),
        (b"[]", None),
        (b'"alone"', None),
        (b"null", None),
        (b'{"model": "alone", "messages": []} trailing', None),
        (b'{"model": "alone", "messages": [], "x": NaN}', None),
        (b'{"model": "alone", "messages": [{"role": "user", "content": "\xff\xfe"}]}', None),
        (gzip.compress(b'{"model": "alone", "messages": []}', mtime=0), None),
        (b'{"messages": []}', "model"),
        (b'{"model": null, "messages": []}', "model"),
        (b'{"model": 1, "messages": []}', "model"),
        (b'{"model": "alone"}', "messages"),
        (b'{"model": "alone", "messages": "hi"}', "messages"),
        (b'{"model": "alone", "messages": [], "stream": "yes"}', "stream"),
        (b'{"model": "alone", "messages": [], "stream_options": 1}', "stream_options"),
    ],
)
async def test_a_malformed_body_is_a_400_that_names_what_is_wrong(
    data: bytes, param: str | None, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    answer = await http.post(PATH, content=data, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert error(answer)["param"] == param
    assert answer.headers["x-should-retry"] == "false"
    assert gateway.asked == (0, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * DEPTH + b"]" * DEPTH,
        b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
        b'{"model":"alone","messages":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
        b'{"model":"alone","messages":[],"x":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
        b'{"model":"alone","messages":[{"content":' + b"[" * DEPTH + b"]" * DEPTH + b"}]}",
    ],
    ids=["lists", "objects", "messages", "unknown field", "content"],
)
async def test_a_body_nested_without_end_is_refused_and_the_replica_lives(
    data: bytes, talkative: Gateway
) -> None:
    async with talkative.http() as http:
        answer = await http.post(PATH, content=data)
        assert answer.status_code == 400
        assert error(answer)["code"] == "invalid_request"
        assert (await http.get("/livez")).status_code == 200
    assert talkative.asked == (0, 0)


async def test_a_list_of_a_million_elements_is_passed_on(talkative: Gateway) -> None:
    data = json.dumps(body("hi", model="alone", x=[0] * 10**6)).encode()
    async with talkative.http() as http:
        assert (await http.post(PATH, content=data)).status_code == 200
    assert len(talkative.last()["body"]["x"]) == 10**6


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/nothing", 404, "not_found"),
        ("POST", "/v1/chat/completions/", 404, "not_found"),
        ("GET", "/v1/chat", 404, "not_found"),
        ("GET", PATH, 405, "method_not_allowed"),
        ("DELETE", PATH, 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/models/../../etc/passwd", 404, "not_found"),
        ("GET", "/v1/models/..%2F..%2Fetc%2Fpasswd", 404, "model_not_found"),
    ],
)
async def test_wrong_paths_and_methods_are_refused_in_our_shape(
    method: str, path: str, status: int, code: str, http: httpx.AsyncClient
) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == status
    assert error(answer)["code"] == code
    if status == 405:
        assert answer.headers["allow"]


async def test_a_model_that_does_not_exist_cannot_be_guessed_by_its_spelling(
    http: httpx.AsyncClient,
) -> None:
    for name in ("ALONE", " alone", "alone ", "../alone", "alone\x00", "pro-only", "x" * 5000):
        answer = await http.post(PATH, json=body(model=name))
        assert answer.status_code == 404, name
        assert error(answer)["code"] == "model_not_found"
