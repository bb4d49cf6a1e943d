"""What OpenAI's client makes of limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.cluster.harness import wait_until
from tests.integration.conftest import Gateway, Make

KEYS = [
    {"id": "few", "key": "sk-few", "rpm": 2, "tpm": 100_000},
    {"id": "other", "key": "sk-other", "rpm": 2},
    {"id": "poor", "key": "sk-poor", "max_budget": 0.01},
    {"id": "small", "key": "sk-small", "tpm": 100},
    {"id": "single", "key": "sk-single", "max_parallel_requests": 1},
]
ASKED: dict[str, Any] = {"model": "alone", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def limited_gateway(make_gateway: Make) -> Gateway:
    return make_gateway({}, keys=KEYS)


@pytest.fixture
def limited(limited_gateway: Gateway) -> Iterator[Gateway]:
    limited_gateway.reset()
    yield limited_gateway
    wait_until(limited_gateway.is_idle, "nothing claimed or in flight", 5)


async def test_headers_count_down_and_a_refusal_is_a_rate_limit_error(limited: Gateway) -> None:
    async with limited.sdk(api_key="sk-few") as sdk:
        left = []
        for _ in range(2):
            raw = await sdk.chat.completions.with_raw_response.create(**ASKED, max_tokens=50)
            left.append(raw.headers["x-ratelimit-remaining-requests"])
            assert raw.headers["x-ratelimit-limit-tokens"] == "100000"
        assert left == ["1", "0"]
        with pytest.raises(openai.RateLimitError) as raised:
            await sdk.chat.completions.create(**ASKED)
    error = raised.value
    assert (error.code, error.type) == ("rate_limit_exceeded", "rate_limit_error")
    assert "2 requests per minute of key 'few'" in error.message
    assert 1 <= int(error.response.headers["retry-after"]) <= 62


async def test_a_stream_tells_what_is_left_before_it_begins(limited: Gateway) -> None:
    async with limited.sdk(api_key="sk-other") as sdk:
        raw = await sdk.chat.completions.with_raw_response.create(**ASKED, stream=True)
        assert raw.headers["x-ratelimit-remaining-requests"] == "1"
        assert [chunk async for chunk in raw.parse()]


@pytest.mark.parametrize(
    ("key", "fields", "code"),
    [
        ("sk-poor", {}, "insufficient_quota"),
        ("sk-small", {"max_tokens": 101}, "rate_limit_exceeded"),
    ],
    ids=["no money", "never fits"],
)
async def test_what_waiting_cannot_help_is_not_tried_again(
    limited: Gateway, key: str, fields: dict[str, Any], code: str
) -> None:
    if key == "sk-poor":
        spent = "start_ms=1 duration_ms=0 spent=10000000 held=0"
        limited.cluster.redis.hset("gw:{c:key:poor}:limits", "key:poor:budget", spent)
    before = len(limited.cluster.replicas[0].events("request"))
    async with limited.sdk(api_key=key, max_retries=2) as sdk:
        with pytest.raises(openai.RateLimitError) as raised:
            await sdk.chat.completions.create(**ASKED, **fields)
    assert raised.value.code == code
    assert "retry-after" not in raised.value.response.headers
    lines = limited.cluster.replicas[0].events("request")[before:]
    assert [(line["status"], line["error_type"]) for line in lines] == [(429, code)]
    assert lines[0]["limited_by"].startswith(f"key:{key.removeprefix('sk-')} ")
    assert limited.asked == (0, 0)


async def test_a_bad_request_costs_no_place(limited: Gateway) -> None:
    async with limited.sdk(api_key="sk-single") as sdk:
        with pytest.raises(openai.NotFoundError):
            await sdk.chat.completions.create(**{**ASKED, "model": "unknown"})
        with pytest.raises(openai.BadRequestError):
            await sdk.chat.completions.create(**ASKED, stream="yes")  # type: ignore[call-overload]
        limited.fault(status=400, count=1)
        with pytest.raises(openai.BadRequestError):
            await sdk.chat.completions.create(**ASKED)
        for _ in range(3):
            assert (await sdk.chat.completions.create(**ASKED)).choices
