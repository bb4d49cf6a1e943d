"""A replica whose models are routed by `expected_ttft`.

`pair` is all but always drawn to the first engine where both are as good.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.harness import body, wait_until
from tests.integration.conftest import Gateway, Make

PATH = "/v1/chat/completions"
ENDPOINTS = "gw:{m:pair}:endpoints"
LONG = "word " * 4_000
Messages = list[dict[str, Any]]


@pytest.fixture(scope="module")
def comparing_gateway(make_gateway: Make) -> Gateway:
    """Compares for all its models."""
    return make_gateway({"default_router": "expected_ttft"})


@pytest.fixture
def comparing(comparing_gateway: Gateway) -> Iterator[Gateway]:
    """The same, for this test."""
    comparing_gateway.reset()
    yield comparing_gateway
    wait_until(comparing_gateway.is_idle, "nothing claimed or in flight", 5)


def asking(text: str) -> Messages:
    return [{"role": "user", "content": f"{text} {LONG}"}]


async def ask(gateway: Gateway, messages: Messages) -> str:
    """Have a prompt answered as a stream; returns the location that did it."""
    async with gateway.http() as http:
        answer = await http.post(PATH, json=body(model="pair", messages=messages, stream=True))
    assert answer.status_code == 200
    assert answer.text.endswith("data: [DONE]\n\n")
    wait_until(gateway.is_idle, "settled", 5)
    return answer.headers["x-concord-endpoint"].partition(":")[2]


def rate(gateway: Gateway, location: str) -> float | None:
    found = gateway.cluster.redis.hget(ENDPOINTS, f"{location}:prefill_rate")
    return float(found) if found else None


async def test_conversation_stays_where_it_is_cached_and_another_of_the_caller_does_not(
    comparing: Gateway,
) -> None:
    # Given a conversation that began while the first engine had much to do
    redis, first, second = comparing.cluster.redis, comparing.first, comparing.second
    busy = f"{first.location}:prefill_tokens"
    redis.hset(ENDPOINTS, busy, 1_000_000)
    begun = asking("one")
    assert await ask(comparing, begun) == second.location
    redis.hdel(ENDPOINTS, busy)

    # When
    goes_on = [*begun, {"role": "assistant", "content": "and?"}, {"role": "user", "content": "so"}]

    # Then
    assert await ask(comparing, goes_on) == second.location
    assert await ask(comparing, asking("another")) == first.location
    assert await ask(comparing, goes_on) == second.location
    assert not redis.keys("gw:{m:pair}:pin:*")


async def test_rate_of_an_engine_is_learned_from_first_outputs(comparing: Gateway) -> None:
    assert await ask(comparing, asking("one")) == comparing.first.location

    assert (rate(comparing, comparing.first.location) or 0) > 1_000
    assert rate(comparing, comparing.second.location) is None


async def test_failed_attempt_is_made_again_at_the_next_best(comparing: Gateway) -> None:
    comparing.fault(status=503, count=1)

    assert await ask(comparing, asking("one")) == comparing.second.location
    assert comparing.asked == (1, 1)
