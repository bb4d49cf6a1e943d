"""OpenAI's own SDK finds what it expects."""

from __future__ import annotations

import httpx
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.integration.conftest import KEYS, TEXT, Gateway

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
USE_A_TOOL: list[ChatCompletionMessageParam] = [{"role": "user", "content": "please use a tool"}]
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


async def test_a_chat_is_answered(sdk: AsyncOpenAI) -> None:
    answer = await sdk.chat.completions.create(model="alone", messages=HI)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "alone"
    assert answer.usage
    assert answer.usage.completion_tokens == 5
    assert answer._request_id
    assert answer._request_id.startswith("req_")


async def test_a_chat_is_streamed(sdk: AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(model="alone", messages=HI, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert {chunk.model for chunk in chunks} == {"alone"}
    assert not any(chunk.usage for chunk in chunks)


async def test_a_stream_tells_its_usage_to_who_asks(sdk: AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(
        model="alone", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [chunk async for chunk in stream]
    assert last.choices == []
    assert last.usage
    assert last.usage.completion_tokens == 5
    assert all(chunk.choices for chunk in chunks)


async def test_the_helper_for_streams_works(sdk: AsyncOpenAI) -> None:
    async with sdk.chat.completions.stream(model="alone", messages=HI) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == TEXT


async def test_tools_pass_both_ways(sdk: AsyncOpenAI, gateway: Gateway) -> None:
    answer = await sdk.chat.completions.create(
        model="alone", messages=USE_A_TOOL, tools=TOOLS, tool_choice="auto"
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    [call] = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", '{"city":"tok0"}')
    received = gateway.last()["body"]
    assert received["tools"] == TOOLS
    assert received["tool_choice"] == "auto"


async def test_tools_pass_both_ways_in_a_stream(sdk: AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(
        model="alone", messages=USE_A_TOOL, tools=TOOLS, stream=True
    )
    names, arguments, finish = [], "", None
    async for chunk in stream:
        choice = chunk.choices[0]
        finish = choice.finish_reason or finish
        for call in choice.delta.tool_calls or []:
            assert call.index == 0
            assert call.function
            names += [call.function.name] if call.function.name else []
            arguments += call.function.arguments or ""
    assert (names, arguments, finish) == (["weather"], '{"city":"tok0"}', "tool_calls")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_fields_that_nobody_knows_reach_the_engine_unchanged(
    streamed: bool, sdk: AsyncOpenAI, gateway: Gateway
) -> None:
    # Given fields old, new and invented
    extra = {
        "top_k": 3,
        "chat_template_kwargs": {"enable_thinking": False, "deep": [1, {"é": "\u2028"}]},
        "min_p": 0.1,
        "x": None,
        "big": 12345678901234567890,
        "float": 1e-7,
    }
    # When they are sent
    answer = await sdk.chat.completions.create(
        model="alone",
        messages=[{"role": "user", "content": "hi", "name": "n"}],
        temperature=0.0,
        seed=7,
        stream=streamed,
        extra_body={**extra, "priority": -1},
    )
    if streamed:
        async for _ in answer:  # type: ignore[union-attr]
            pass
    # Then the engine gets them but the priority, and nothing but what the gateway says it adds
    received = gateway.last()["body"]
    added = {"stream_options": {"include_usage": True}} if streamed else {}
    assert received == {
        "model": "alone",
        "messages": [{"role": "user", "content": "hi", "name": "n"}],
        "temperature": 0.0,
        "seed": 7,
        "stream": streamed,
        **extra,
        **added,
    }


async def test_an_alias_is_answered_under_the_name_that_was_asked_for(
    sdk: AsyncOpenAI, gateway: Gateway
) -> None:
    answer = await sdk.chat.completions.create(model="chat", messages=HI)
    assert answer.model == "chat"
    assert gateway.last()["body"]["model"] == "vendor/team/chat"


async def test_models_are_listed_without_aliases_and_without_what_is_not_for_all(
    sdk: AsyncOpenAI,
) -> None:
    ids = [model.id async for model in sdk.models.list()]
    assert "vendor/team/chat" in ids
    assert "chat" not in ids
    assert "pro-only" not in ids
    assert len(ids) == len(set(ids)) == 9


async def test_models_are_listed_as_far_as_the_key_may_use_them(guarded: Gateway) -> None:
    seen = {}
    for key in KEYS:
        async with guarded.sdk(api_key=key["key"]) as sdk:
            seen[key["id"]] = [model.id async for model in sdk.models.list()]
    assert "pro-only" not in seen["alice"]
    assert "pair" in seen["alice"]
    assert seen["bob"] == ["alone"]


@pytest.mark.parametrize("name", ["alone", "vendor/team/chat", "chat"])
async def test_a_model_is_retrieved_by_id_or_alias(name: str, sdk: AsyncOpenAI) -> None:
    model = await sdk.models.retrieve(name)
    assert model.id == ("vendor/team/chat" if name == "chat" else name)
    assert model.object == "model"
    assert model.owned_by == "vllm"


async def test_a_model_with_slashes_is_retrieved_with_bare_slashes_too(
    http: httpx.AsyncClient,
) -> None:
    answer = await http.get("/v1/models/vendor/team/chat")
    assert answer.json()["id"] == "vendor/team/chat"


async def test_the_sdk_repeats_what_may_help_and_succeeds(gateway: Gateway) -> None:
    # Given an engine that is overloaded once and says when to come again
    gateway.fault(status=429, headers={"retry-after-ms": "10"}, count=1)
    async with gateway.sdk(max_retries=2) as sdk:
        answer = await sdk.chat.completions.create(model="alone", messages=HI)
    assert answer.choices[0].message.content == TEXT
    assert gateway.asked == (2, 0)


async def test_the_sdk_does_not_repeat_what_cannot_help(gateway: Gateway) -> None:
    gateway.fault(status=401)
    async with gateway.sdk(max_retries=2) as sdk:
        with pytest.raises(Exception, match="credentials"):
            await sdk.chat.completions.create(model="alone", messages=HI)
    assert gateway.asked == (1, 0)
