"""What a client is told of each upstream status, and what it is never told."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.cluster.harness import body
from tests.integration.conftest import UPSTREAM_KEY, Gateway

PATH = "/v1/chat/completions"
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
HOST = "engine-7.internal.example.com"


@STREAMED
@pytest.mark.parametrize(
    ("upstream", "status", "code"),
    [
        (400, 400, None),
        (401, 502, "upstream_auth_error"),
        (402, 402, None),
        (403, 502, "upstream_auth_error"),
        (404, 404, None),
        (407, 502, "upstream_auth_error"),
        (408, 408, None),
        (409, 409, None),
        (413, 413, None),
        (418, 502, "upstream_error"),
        (422, 422, None),
        (429, 429, None),
        (500, 500, "upstream_error"),
        (502, 502, "upstream_error"),
        (503, 503, "upstream_error"),
        (504, 504, None),
        (529, 529, "upstream_error"),
        (204, 502, "upstream_error"),
        (302, 502, "upstream_error"),
    ],
)
async def test_an_upstream_status_becomes_this_one(
    upstream: int,
    status: int,
    code: str | None,
    streamed: bool,
    http: httpx.AsyncClient,
    gateway: Gateway,
) -> None:
    # Given an upstream that answers with a status, and names its host, its account and our key
    url = f"{gateway.first.url}{PATH}"
    words = f"Key {UPSTREAM_KEY} of org-abcdefgh12345678 refused at {url} ({HOST}:8443, 10.1.2.3)"
    error = {"message": words, "type": "some_error", "param": None, "code": None}
    gateway.fault(status=upstream, body="" if upstream == 204 else {"error": error})
    # When it is asked
    answer = await http.post(PATH, json=body(model="alone", stream=streamed))
    # Then the client sees the status that this stands for, in our shape
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    found = json.loads(answer.content)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert found["message"]
    assert code in (None, found["code"])
    # And nothing that names our side
    for secret in (
        UPSTREAM_KEY,
        HOST,
        "127.0.0.1",
        "10.1.2.3",
        "org-abcdefgh",
        str(gateway.first.port),
    ):
        assert secret not in answer.text
    own = answer.headers.get("x-concord-endpoint")
    assert own == f"alone:{gateway.first.location}"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_page_of_html_does_not_reach_the_client(
    streamed: bool, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(status=502, body=f"<html>Bad gateway at {HOST}</html>")
    answer = await http.post(PATH, json=body(model="alone", stream=streamed))
    assert answer.status_code == 502
    assert answer.json()["error"]["message"] == "The upstream answered with status 502."


async def test_an_error_event_in_mid_stream_names_nothing_either(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    words = f"lost {HOST}:8443 with {UPSTREAM_KEY}"
    gateway.fault(error_frame={"message": words, "code": 500}, after_tokens=1)
    answer = await http.post(PATH, json=body(model="alone", stream=True))
    assert '"error"' in answer.text
    assert HOST not in answer.text
    assert UPSTREAM_KEY not in answer.text


@pytest.mark.parametrize(
    ("status", "headers", "retry_after", "should_retry"),
    [
        (429, {"retry-after": "7"}, "7", None),
        (429, {"retry-after-ms": "1200"}, "2", None),
        (503, {"retry-after": "1.5"}, "2", None),
        (429, {"retry-after": "junk"}, None, None),
        (400, {}, None, "false"),
        (401, {}, None, "false"),
        (402, {}, None, "false"),
        (404, {}, None, "false"),
        (500, {}, None, None),
    ],
)
async def test_a_client_is_told_whether_and_when_to_come_again(
    status: int,
    headers: dict[str, str],
    retry_after: str | None,
    should_retry: str | None,
    http: httpx.AsyncClient,
    gateway: Gateway,
) -> None:
    gateway.fault(status=status, headers=headers)
    answer = await http.post(PATH, json=body(model="alone"))
    assert answer.headers.get("retry-after") == retry_after
    assert answer.headers.get("x-should-retry") == should_retry


async def test_a_dead_endpoint_does_not_hide_what_is_wrong_with_the_request(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given a first endpoint that cannot be reached, and a second that finds a fault
    gateway.second.fault(status=422, body={"error": {"message": "top_k must be positive"}})
    answer = await http.post(PATH, json=body(model="dead-first"))
    # Then the fault is told
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "top_k must be positive"
    # And of two that say nothing of the request, the first
    gateway.second.fault(status=429)
    answer = await http.post(PATH, json=body(model="dead-first"))
    assert answer.status_code == 502


async def test_a_prompt_too_long_is_told_as_such(http: httpx.AsyncClient, gateway: Gateway) -> None:
    words = "This model's maximum context length is 8192 tokens. However, you requested 9000."
    gateway.fault(status=400, body={"error": {"message": words, "type": "BadRequestError"}})
    answer = await http.post(PATH, json=body(model="alone"))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert answer.json()["error"]["message"] == words
