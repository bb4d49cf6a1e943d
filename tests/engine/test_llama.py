"""Real engines: answers, usage, hang-ups and deaths, seen through nginx by OpenAI's SDK."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.cluster.load import until
from tests.engine.llama import MODEL, LlamaCluster, LlamaServer

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120, func_only=True)]

FOREVER = 3000
"""Tokens of a minute or so: an answer that ends earlier has been ended."""
LIMIT_S = 1.0
"""How soon a slot must be free after its client has left."""
LOOK_S = 1.0
"""How often llama.cpp looks whether the client of an answer that has not begun is still there."""


def ask(content: str, max_tokens: int) -> dict[str, Any]:
    """A chat request whose answer takes all the tokens it may."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "extra_body": {"ignore_eos": True},
    }


def long_prompt() -> str:
    """Some seconds of prefill, begun as no earlier one was: nothing of it is cached."""
    return f"{uuid.uuid4()} " + "and then again " * 500


async def engaged(cluster: LlamaCluster) -> LlamaServer:
    """The one server that has begun to work, once it has."""
    [server] = await until(cluster.at_work, "a busy slot")
    return server


async def test_a_chat_is_answered_with_its_usage(sdk: AsyncOpenAI) -> None:
    answer = await sdk.chat.completions.create(**ask("Name a colour.", 12))
    print(answer.model_dump_json(exclude_unset=True, include={"model", "choices", "usage"}))
    assert answer.model == MODEL
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage
    assert answer.usage.prompt_tokens > 3
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "not asked"])
async def test_a_stream_tells_its_usage_to_who_asks(asked: bool, sdk: AsyncOpenAI) -> None:
    options = {"stream_options": {"include_usage": True}} if asked else {}
    stream = await sdk.chat.completions.create(
        **ask("Name a colour.", 12),
        stream=True,
        **options,
    )
    chunks = [chunk async for chunk in stream]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    print("".join(choice.delta.content or "" for choice in choices), chunks[-1].usage)
    assert sum(bool(choice.delta.content) for choice in choices) > 3
    assert [c.finish_reason for c in choices if c.finish_reason] == ["length"]
    assert {chunk.model for chunk in chunks} == {MODEL}
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert [usage.completion_tokens for usage in usages] == ([12] if asked else [])


async def test_each_replica_serves_and_each_engine_answers(
    cluster: LlamaCluster, sdk: AsyncOpenAI
) -> None:
    served = [len(replica.events("request")) for replica in cluster.replicas]
    raws = [
        await sdk.chat.completions.with_raw_response.create(
            **ask("Hi", 1), extra_headers={"x-concord-session": f"session-{n}"}
        )
        for n in range(30)
    ]
    endpoints = [raw.headers["x-concord-endpoint"] for raw in raws]
    print({endpoint: endpoints.count(endpoint) for endpoint in sorted(set(endpoints))})
    assert set(endpoints) == {server.endpoint for server in cluster.servers}
    for replica, before in zip(cluster.replicas, served, strict=True):
        assert len(replica.events("request")) > before


async def test_a_client_that_hangs_up_in_mid_stream_frees_its_slot(
    cluster: LlamaCluster, sdk: AsyncOpenAI
) -> None:
    # Given a stream that flows
    stream = await sdk.chat.completions.create(**ask("Count.", FOREVER), stream=True)
    server = await engaged(cluster)

    # When its client hangs up
    await stream.close()
    left = time.monotonic()

    # Then the slot is free soon, and nothing is held
    await until(lambda: not server.busy(), "a free slot", LIMIT_S)
    print(f"free after {time.monotonic() - left:.2f} s")
    await until(cluster.is_idle, "no claim", LIMIT_S)


@pytest.mark.parametrize("when", ["prefill", "whole"])
async def test_a_client_that_hangs_up_before_any_output_frees_its_slot(
    when: str, cluster: LlamaCluster, sdk: AsyncOpenAI
) -> None:
    # Given a request with a long prompt, or for an answer in one piece
    content = long_prompt() if when == "prefill" else "Count."
    asked = sdk.chat.completions.create(**ask(content, FOREVER), stream=when == "prefill")
    client = asyncio.create_task(asked)
    server = await engaged(cluster)
    cancelled = server.cancelled()

    # When its client hangs up
    client.cancel()
    left = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await client

    # Then the engine gives it up when it next looks, the slot is free, and nothing is held
    await until(lambda: server.cancelled() > cancelled, "a cancelled task", LOOK_S + LIMIT_S)
    print(f"{when}: given up after {time.monotonic() - left:.2f} s")
    await until(lambda: not server.busy(), "a free slot", LIMIT_S)
    await until(cluster.is_idle, "no claim", LIMIT_S)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_engine_killed_before_its_first_token_is_replaced_by_the_other(
    streamed: bool, cluster: LlamaCluster, sdk: AsyncOpenAI
) -> None:
    # Given an engine at work on a long prompt
    asked = asyncio.create_task(
        sdk.chat.completions.with_raw_response.create(**ask(long_prompt(), 8), stream=streamed)
    )
    server = await engaged(cluster)
    [other] = set(cluster.servers) - {server}

    # When it is killed
    server.kill()

    # Then the client gets the other's answer
    raw = await asked
    headers = {k: v for k, v in raw.headers.items() if k.startswith("x-concord")}
    print(f"killed {server.endpoint}; {headers}")
    assert headers["x-concord-endpoint"] == other.endpoint
    assert headers["x-concord-attempts"] == "2"
    answer = raw.parse()
    if isinstance(answer, openai.AsyncStream):
        choices = [choice async for chunk in answer for choice in chunk.choices]
        assert any(choice.delta.content for choice in choices)
        assert choices[-1].finish_reason
    else:
        assert answer.choices[0].message.content
        assert answer.choices[0].finish_reason


async def test_an_engine_killed_in_mid_stream_ends_it_with_an_error_event(
    cluster: LlamaCluster, sdk: AsyncOpenAI
) -> None:
    # Given a stream that flows
    stream = await sdk.chat.completions.create(**ask("Count.", FOREVER), stream=True)
    server = await engaged(cluster)
    text = ""

    async def read() -> None:
        nonlocal text
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            # When its engine is killed
            if text and server.is_running:
                server.kill()

    # Then the SDK raises what the error event says, and no lost connection
    with pytest.raises(openai.APIError) as raised:
        await read()
    print(f"{text!r}, then {raised.value!r} with {raised.value.body}")
    assert text
    assert not isinstance(raised.value, openai.APIConnectionError)
    assert raised.value.code == "upstream_error"

    # And the next request is the other's
    [other] = set(cluster.servers) - {server}
    raw = await sdk.chat.completions.with_raw_response.create(**ask("Hi", 4))
    assert raw.headers["x-concord-endpoint"] == other.endpoint
    await until(cluster.is_idle, "no claim")
