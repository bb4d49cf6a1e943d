"""Anthropic's and OpenAI's own SDKs list and retrieve models."""

from __future__ import annotations

import datetime

import anthropic
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.integration.conftest import KEYS, Gateway


def client(gateway: Gateway, api_key: str = "unused") -> AsyncAnthropic:
    return AsyncAnthropic(base_url=gateway.url, api_key=api_key, max_retries=0, timeout=30)


async def test_anthropics_sdk_walks_through_all_pages(gateway: Gateway, sdk: AsyncOpenAI) -> None:
    expected = [model.id async for model in sdk.models.list()]
    assert len(expected) == 9
    async with client(gateway) as claude:
        for limit in (1, 4, 9, 1000):
            assert [model.id async for model in claude.models.list(limit=limit)] == expected
        first = await claude.models.list(limit=4)
        assert first.has_more
        assert (first.first_id, first.last_id) == (expected[0], expected[3])
        following = await first.get_next_page()
        assert [model.id for model in following.data] == expected[4:8]


async def test_anthropics_sdk_walks_backwards(gateway: Gateway, sdk: AsyncOpenAI) -> None:
    expected = [model.id async for model in sdk.models.list()]
    async with client(gateway) as claude:
        page = await claude.models.list(limit=3, before_id=expected[-1])
        assert [model.id for model in page.data] == expected[5:8]
        earlier = await page.get_next_page()
        assert [model.id for model in earlier.data] == expected[2:5]
        last = await earlier.get_next_page()
        assert [model.id for model in last.data] == expected[:2]
        assert not last.has_next_page()


@pytest.mark.parametrize("name", ["alone", "vendor/team/chat", "chat"])
async def test_anthropics_sdk_retrieves_a_model_by_id_or_alias(name: str, gateway: Gateway) -> None:
    async with client(gateway) as claude:
        model = await claude.models.retrieve(name)
    expected = "vendor/team/chat" if name == "chat" else name
    assert (model.id, model.display_name, model.type) == (expected, expected, "model")
    assert model.created_at == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


async def test_anthropics_sdk_reads_our_errors(gateway: Gateway, guarded: Gateway) -> None:
    async with client(gateway) as claude:
        with pytest.raises(anthropic.NotFoundError) as missing:
            await claude.models.retrieve("nobody")
        with pytest.raises(anthropic.BadRequestError) as refused:
            await claude.models.list(after_id="nobody")
    assert missing.value.type == "not_found_error"
    assert refused.value.type == "invalid_request_error"
    async with client(guarded, "sk-wrong") as claude:
        with pytest.raises(anthropic.AuthenticationError) as unknown:
            await claude.models.list()
    assert unknown.value.type == "authentication_error"


async def test_anthropics_sdk_is_shown_what_its_key_may_use(guarded: Gateway) -> None:
    seen = {}
    for key in KEYS:
        async with client(guarded, key["key"]) as claude:
            seen[key["id"]] = [model.id async for model in claude.models.list()]
    assert "pair" in seen["alice"]
    assert "pro-only" not in seen["alice"]
    assert seen["bob"] == ["alone"]


async def test_openais_sdk_finds_what_openrouter_tells_of_a_model(sdk: AsyncOpenAI) -> None:
    model = await sdk.models.retrieve("alone")
    assert (model.id, model.object, model.owned_by) == ("alone", "model", "vllm")
    assert (model.model_extra or {}).keys() == {
        "name",
        "input_modalities",
        "output_modalities",
        "quantization",
        "context_length",
        "max_output_length",
        "pricing",
        "supported_sampling_parameters",
        "supported_features",
    }


async def test_models_are_found_below_other_base_urls_too(gateway: Gateway) -> None:
    async with AsyncAnthropic(
        base_url=f"{gateway.url}/anthropic", api_key="unused", max_retries=0
    ) as claude:
        expected = [model.id async for model in claude.models.list()]
        assert (await claude.models.retrieve("chat")).id == "vendor/team/chat"
    assert len(expected) == 9
    for folder in ("", "/openrouter", "/v1"):
        async with gateway.sdk(base_url=gateway.url + folder) as openai:
            assert [model.id async for model in openai.models.list()] == expected
            assert (await openai.models.retrieve("chat")).id == "vendor/team/chat"
