"""Each error class of OpenAI's SDK is raised for what it stands for."""

from __future__ import annotations

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.cluster.harness import ADMIN_KEY
from tests.integration.conftest import KEYS, TEXT, Gateway

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
ALICE, BOB = (key["key"] for key in KEYS)


async def ask(sdk: AsyncOpenAI, model: str = "alone", *, stream: bool = False) -> str:
    answer = await sdk.chat.completions.create(model=model, messages=HI, stream=stream)
    if not isinstance(answer, openai.AsyncStream):
        return answer.choices[0].message.content or ""
    return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])


@STREAMED
async def test_a_request_that_is_wrong_is_a_bad_request(streamed: bool, sdk: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await ask(sdk, "", stream=streamed)
    assert raised.value.param == "model"
    assert raised.value.code == "invalid_request"
    assert raised.value.type == "invalid_request_error"
    assert raised.value.request_id


async def test_input_that_no_route_takes_is_a_bad_request(sdk: AsyncOpenAI) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    with pytest.raises(openai.BadRequestError, match="does not support image input"):
        await sdk.chat.completions.create(
            model="pair",
            messages=[{"role": "user", "content": [image]}],  # type: ignore[list-item,misc]
        )


@STREAMED
async def test_what_the_engine_refuses_is_a_bad_request_in_the_engines_words(
    streamed: bool, gateway: Gateway, sdk: AsyncOpenAI
) -> None:
    error = {"message": "bad top_k", "type": "invalid_request_error", "param": "top_k", "code": "x"}
    gateway.fault(status=400, body={"error": error})
    with pytest.raises(openai.BadRequestError, match="bad top_k") as raised:
        await ask(sdk, stream=streamed)
    assert (raised.value.param, raised.value.code) == ("top_k", "x")


@pytest.mark.parametrize("key", ["sk-wrong", "unused"])
async def test_a_wrong_key_is_an_authentication_error(key: str, guarded: Gateway) -> None:
    async with guarded.sdk(api_key=key) as sdk:
        with pytest.raises(openai.AuthenticationError) as raised:
            await ask(sdk)
        with pytest.raises(openai.AuthenticationError):
            await sdk.models.list()
    assert raised.value.code == "invalid_api_key"
    assert key not in str(raised.value)
    assert raised.value.response.headers["www-authenticate"] == "Bearer"
    assert guarded.asked == (0, 0)


async def test_a_known_key_is_served_in_either_header(guarded: Gateway) -> None:
    async with guarded.sdk(api_key=ALICE) as sdk:
        assert await ask(sdk) == TEXT
    async with guarded.http(headers={"x-api-key": ALICE}) as http:
        assert (await http.get("/v1/models")).status_code == 200
    async with guarded.sdk(api_key=ADMIN_KEY) as sdk:
        assert await ask(sdk, "pro-only") == TEXT


@pytest.mark.parametrize("path", ["/routing", "/health/deep"])
async def test_an_operators_door_is_a_permission_denied(path: str, guarded: Gateway) -> None:
    async with guarded.sdk(api_key=ALICE, base_url=guarded.url) as sdk:
        with pytest.raises(openai.PermissionDeniedError) as raised:
            await sdk.get(path, cast_to=object)
    assert raised.value.code == "permission_denied"
    async with guarded.sdk(api_key=ADMIN_KEY, base_url=guarded.url) as sdk:
        assert await sdk.get(path, cast_to=object)


async def test_unknown_and_forbidden_models_are_not_found_in_the_same_bytes(
    guarded: Gateway,
) -> None:
    # Given a model for another role, one outside the key's list, and one that does not exist
    bodies = []
    for key, name in ((ALICE, "pro-only"), (BOB, "pair"), (ALICE, "nothing-here")):
        async with guarded.sdk(api_key=key) as sdk:
            # When each is asked for, in chat and by itself
            with pytest.raises(openai.NotFoundError) as chatted:
                await ask(sdk, name)
            with pytest.raises(openai.NotFoundError) as retrieved:
                await sdk.models.retrieve(name)
        assert chatted.value.code == "model_not_found"
        assert chatted.value.param == "model"
        for raised in (chatted, retrieved):
            bodies.append(raised.value.response.content.replace(name.encode(), b"NAME"))
    # Then all answers are the same but for the name, and no engine heard of it
    assert len(set(bodies)) == 1
    assert guarded.asked == (0, 0)


@STREAMED
async def test_too_many_requests_upstream_are_a_rate_limit(
    streamed: bool, gateway: Gateway, sdk: AsyncOpenAI
) -> None:
    gateway.fault(status=429, headers={"retry-after": "7"})
    with pytest.raises(openai.RateLimitError) as raised:
        await ask(sdk, stream=streamed)
    assert raised.value.response.headers["retry-after"] == "7"


@STREAMED
@pytest.mark.parametrize(
    ("fault", "model", "status", "code"),
    [
        ({"status": 503}, "alone", 503, "upstream_error"),
        ({"status": 500}, "alone", 500, "upstream_error"),
        ({"cut_after_tokens": 0}, "alone", 502, "upstream_error"),
        ({"status": 401}, "alone", 502, "upstream_auth_error"),
        ({"silent": True}, "hasty-alone", 504, "upstream_timeout"),
        (None, "dead-alone", 502, "upstream_error"),
    ],
    ids=["503", "500", "cut", "401", "silent", "unreachable"],
)
async def test_what_goes_wrong_upstream_is_an_internal_server_error(
    fault: dict[str, object] | None,
    model: str,
    status: int,
    code: str,
    streamed: bool,
    gateway: Gateway,
    sdk: AsyncOpenAI,
) -> None:
    if fault:
        gateway.fault(**fault)
    with pytest.raises(openai.InternalServerError) as raised:
        await ask(sdk, model, stream=streamed)
    assert raised.value.status_code == status
    assert raised.value.code == code


async def test_a_model_whose_circuits_are_all_open_is_a_503_that_says_when(
    gateway: Gateway, sdk: AsyncOpenAI
) -> None:
    # Given an endpoint that has failed three times
    gateway.fault(status=500)
    for _ in range(3):
        with pytest.raises(openai.InternalServerError):
            await ask(sdk)
    # When it is asked for again
    with pytest.raises(openai.InternalServerError, match=r"1 circuit_open") as raised:
        await ask(sdk)
    # Then nobody is asked, and the client is told to wait for the probe
    assert (raised.value.status_code, raised.value.code) == (503, "no_healthy_upstream")
    assert 1 <= int(raised.value.response.headers["retry-after"]) <= 30
    assert gateway.asked == (3, 0)


@pytest.mark.parametrize(
    "fault",
    [
        {"cut_after_tokens": 2},
        {"error_frame": {"message": "engine died", "code": 500}, "after_tokens": 2},
    ],
    ids=["cut", "error frame"],
)
async def test_a_stream_that_breaks_raises_after_the_tokens_that_came(
    fault: dict[str, object], gateway: Gateway, sdk: AsyncOpenAI
) -> None:
    gateway.fault(**fault)
    stream = await sdk.chat.completions.create(model="pair", messages=HI, stream=True)
    text = ""

    async def read() -> None:
        nonlocal text
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""

    with pytest.raises(openai.APIError) as raised:
        await read()
    assert text == "tok0 tok1"
    assert not isinstance(raised.value, openai.APIConnectionError)
    assert raised.value.code == "upstream_error"
    assert gateway.asked == (1, 0)
