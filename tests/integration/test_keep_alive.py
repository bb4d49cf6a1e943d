"""Silence in a stream is filled with comments, which clients read over and which decide nothing."""

from __future__ import annotations

import openai
import pytest
from openai import AsyncOpenAI

from tests.cluster.harness import body
from tests.integration.conftest import TEXT, Gateway

PATH = "/v1/chat/completions"
KEEP_ALIVE = ": keep-alive\n\n"


async def read(sdk: AsyncOpenAI, model: str) -> str:
    stream = await sdk.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hi"}], stream=True
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def test_a_slow_first_token_comes_after_comments(talkative: Gateway) -> None:
    talkative.fault(delay_ms=400)
    async with talkative.http() as http:
        answer = await http.post(PATH, json=body(model="alone", stream=True))
    assert answer.status_code == 200
    assert answer.text.startswith(KEEP_ALIVE + KEEP_ALIVE)
    rest = answer.text.replace(KEEP_ALIVE, "")
    assert rest.startswith('data: {"')
    assert rest.endswith("data: [DONE]\n\n")


async def test_the_sdk_reads_over_comments(talkative: Gateway) -> None:
    talkative.fault(delay_ms=400)
    async with talkative.sdk() as sdk:
        assert await read(sdk, "alone") == TEXT


async def test_a_slow_whole_answer_has_none(talkative: Gateway) -> None:
    talkative.fault(delay_ms=400)
    async with talkative.http() as http:
        answer = await http.post(PATH, json=body(model="alone"))
    assert answer.json()["choices"][0]["message"]["content"] == TEXT


async def test_after_comments_another_engine_can_still_take_over(talkative: Gateway) -> None:
    # Given a silent engine, whose timeout is longer than the silence allowed
    talkative.fault(silent=True)
    async with talkative.sdk() as sdk, talkative.http() as http:
        # When streams are asked for
        assert await read(sdk, "hasty-pair") == TEXT
        answer = await http.post(PATH, json=body(model="hasty-pair", stream=True))
    # Then the answer is the other engine's, after comments
    assert answer.text.startswith(KEEP_ALIVE)
    assert answer.text.count('"role"') == 1
    assert answer.text.endswith("data: [DONE]\n\n")
    assert talkative.asked == (2, 2)


async def test_after_comments_a_failure_is_an_error_event(talkative: Gateway) -> None:
    talkative.fault(silent=True)
    async with talkative.http() as http:
        answer = await http.post(PATH, json=body(model="hasty-alone", stream=True))
    assert answer.status_code == 200
    assert '"upstream_timeout"' in answer.text
    assert "[DONE]" not in answer.text
    async with talkative.sdk() as sdk:
        with pytest.raises(openai.APIError) as raised:
            await read(sdk, "hasty-alone")
    assert raised.value.code == "upstream_timeout"


async def test_a_client_that_leaves_during_comments_leaves_nothing_behind(
    talkative: Gateway,
) -> None:
    talkative.fault(silent=True)
    async with (
        talkative.http() as http,
        http.stream("POST", PATH, json=body(model="alone", stream=True)) as answer,
    ):
        async for part in answer.aiter_text():
            assert part == KEEP_ALIVE
            break
    assert talkative.asked == (1, 0)
