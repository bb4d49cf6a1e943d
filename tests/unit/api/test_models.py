"""Who sees which models, under which path, in which shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from gateway.api.models import Models
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.core.route import Model
from tests.fakes.builders import config, key, model, route
from tests.fakes.keys import no_made_keys
from tests.fakes.surfaces import client_of

LISTS = ["/v1/models", "/models", "/openrouter/models", "/anthropic/v1/models"]
ANTHROPIC = {"anthropic-version": "2023-06-01"}
CREATED_S = 1_700_000_000
MANY = [f"m{number:04}" for number in range(1030)]


def named(id: str, **values: Any) -> Model:
    return model(route(model_id=id), id=id, name=f"The {id}", **values)


def client(configured: Config) -> httpx.AsyncClient:
    models = Models(configured, Authenticator(configured, no_made_keys()), created_s=CREATED_S)
    return client_of(models.routes())


async def get(
    configured: Config, path: str, headers: Mapping[str, str] | None = None, **query: Any
) -> httpx.Response:
    async with client(configured) as http:
        return await http.get(path, headers=headers, params=query)


async def ids(configured: Config, path: str, **query: Any) -> list[str]:
    answer = await get(configured, path, ANTHROPIC, **query)
    return [item["id"] for item in answer.json()["data"]]


async def test_an_item_tells_what_openrouter_and_openai_ask_for() -> None:
    # Given
    one = model(
        route("a", provider="first", weight=0.0),
        route("b", provider="second"),
        context_length=1000,
        max_output_length=100,
        input_modalities=("text", "image"),
        quantization="fp8",
        supports_tools=True,
        supports_structured_output=True,
        supported_params=("temperature", "seed"),
        pricing={"prompt": "0.15"},
    )

    # When
    answer = await get(config(one), "/v1/models")

    # Then
    assert answer.headers["content-type"] == "application/json"
    [item] = answer.json()["data"]
    assert item == {
        "id": "m",
        "object": "model",
        "name": "M",
        "created": CREATED_S,
        "owned_by": "first",
        "input_modalities": ["text", "image"],
        "output_modalities": ["text"],
        "quantization": "fp8",
        "context_length": 1000,
        "max_output_length": 100,
        "pricing": {"prompt": "0.15"},
        "supported_sampling_parameters": ["seed", "temperature"],
        "supported_features": ["tools", "json_mode", "structured_outputs"],
    }


@pytest.mark.parametrize(
    ("supports", "features"),
    [
        ({}, []),
        ({"supports_tools": True}, ["tools"]),
        ({"supports_structured_output": True}, ["json_mode", "structured_outputs"]),
    ],
)
async def test_features_are_those_the_model_supports(
    supports: dict[str, bool], features: list[str]
) -> None:
    answer = await get(config(model(**supports)), "/v1/models/m")
    assert answer.json()["supported_features"] == features


async def test_a_model_is_retrieved_as_it_is_listed() -> None:
    async with client(config()) as http:
        one = await http.get("/v1/models/m")
        assert (await http.get("/v1/models")).json()["data"] == [one.json()]


async def test_an_item_for_anthropics_clients() -> None:
    configured = config(named("vendor/chat", aliases=("chat",)))
    item = {
        "type": "model",
        "id": "vendor/chat",
        "display_name": "The vendor/chat",
        "created_at": "1970-01-01T00:00:00Z",
    }
    for name in ("vendor/chat", "vendor%2Fchat", "chat"):
        answer = await get(configured, f"/v1/models/{name}", ANTHROPIC)
        assert answer.json() == item
    answer = await get(configured, "/v1/models", ANTHROPIC)
    assert answer.json() == {
        "data": [item],
        "has_more": False,
        "first_id": "vendor/chat",
        "last_id": "vendor/chat",
    }


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("suffix", ["", "/m"])
@pytest.mark.parametrize(
    ("headers", "is_anthropics"),
    [
        ({}, False),
        ({"user-agent": "OpenAI/Python 3"}, False),
        ({"user-agent": "my-claude-cli/1"}, False),
        ({"anthropic-version": ""}, False),
        ({"anthropic-version": "2023-06-01", "user-agent": "OpenAI/Python 3"}, True),
        ({"user-agent": "anthropic-sdk/1"}, True),
        ({"user-agent": "Claude-CLI/2.1 (external)"}, True),
        ({"user-agent": "claude-sdk/1"}, True),
    ],
)
async def test_the_shape_follows_the_path_and_under_v1_the_client(
    path: str, suffix: str, headers: dict[str, str], is_anthropics: bool
) -> None:
    answer = await get(config(), path + suffix, headers)
    item = answer.json() if suffix else answer.json()["data"][0]
    if path != "/v1/models":
        is_anthropics = path == "/anthropic/v1/models"
    assert ("display_name" in item) is is_anthropics
    assert ("owned_by" in item) is not is_anthropics
    if not suffix:
        assert ("has_more" in answer.json()) is is_anthropics
        assert ("object" in answer.json()) is not is_anthropics


KEYED = config(
    named("for-all"),
    named("for-pro", required_role="pro"),
    named("for-admin", required_role="admin"),
    keys=[
        key("sk-free", "free"),
        key("sk-pro", "pro", role="pro"),
        key("sk-one", "one", role="pro", models=frozenset({"for-pro"})),
    ],
    admin_key="sk-admin",
)


@pytest.mark.parametrize("path", LISTS)
async def test_callers_are_shown_what_they_may_use(path: str) -> None:
    async with client(KEYED) as http:
        seen = {}
        for secret in ("sk-free", "sk-pro", "sk-one", "sk-admin", "sk-free"):
            answer = await http.get(path, headers={"x-api-key": secret})
            seen[secret] = [item["id"] for item in answer.json()["data"]]
    assert seen == {
        "sk-free": ["for-all"],
        "sk-pro": ["for-all", "for-pro"],
        "sk-one": ["for-pro"],
        "sk-admin": ["for-all", "for-pro", "for-admin"],
    }


async def test_a_caller_who_may_use_nothing_gets_an_empty_list() -> None:
    configured = config(named("m", required_role="pro"))
    assert (await get(configured, "/v1/models")).json() == {"object": "list", "data": []}
    assert (await get(configured, "/anthropic/v1/models")).json() == {
        "data": [],
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }


async def test_a_model_without_routes_is_not_listed() -> None:
    configured = config(named("m"), Model(id="n", name="N", routes=()))
    for path in LISTS:
        assert await ids(configured, path) == ["m"]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    ("suffix", "headers", "status", "kind"),
    [
        ("/nobody", {"x-api-key": "sk-free"}, 404, "not_found_error"),
        ("/for-pro", {"x-api-key": "sk-free"}, 404, "not_found_error"),
        ("/for-all", {}, 401, "authentication_error"),
        ("", {"authorization": "Bearer sk-wrong"}, 401, "authentication_error"),
    ],
)
async def test_errors_have_the_shape_that_the_client_reads(
    path: str, suffix: str, headers: dict[str, str], status: int, kind: str
) -> None:
    answer = await get(KEYED, path + suffix, headers)
    assert answer.status_code == status
    if path == "/anthropic/v1/models":
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == kind
    else:
        assert set(answer.json()) == {"error"}
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-should-retry"] == "false"
    assert ("www-authenticate" in answer.headers) is (status == 401)


async def test_unknown_and_forbidden_models_answer_alike() -> None:
    for path in LISTS:
        forbidden = await get(KEYED, f"{path}/for-pro", {"x-api-key": "sk-free"})
        unknown = await get(KEYED, f"{path}/for-xxx", {"x-api-key": "sk-free"})
        assert forbidden.content.replace(b"for-pro", b"for-xxx") == unknown.content


FIVE = config(*(named(id) for id in "abcde"))


@pytest.mark.parametrize(
    ("query", "expected", "has_more"),
    [
        ({"limit": 2}, "ab", True),
        ({"limit": 5}, "abcde", False),
        ({"limit": 4}, "abcd", True),
        ({"limit": 2, "after_id": "b"}, "cd", True),
        ({"limit": 2, "after_id": "c"}, "de", False),
        ({"limit": 2, "after_id": "e"}, "", False),
        ({"limit": 2, "before_id": "e"}, "cd", True),
        ({"limit": 2, "before_id": "c"}, "ab", False),
        ({"limit": 2, "before_id": "b"}, "a", False),
        ({"limit": 2, "before_id": "a"}, "", False),
        ({"after_id": "", "before_id": ""}, "abcde", False),
    ],
)
async def test_a_page_is_what_lies_right_after_or_before_an_id(
    query: dict[str, Any], expected: str, has_more: bool
) -> None:
    page = (await get(FIVE, "/v1/models", ANTHROPIC, **query)).json()
    assert "".join(item["id"] for item in page["data"]) == expected
    assert page["has_more"] is has_more
    assert page["first_id"] == (expected[0] if expected else None)
    assert page["last_id"] == (expected[-1] if expected else None)


@pytest.mark.parametrize(("limit", "count"), [(None, 20), (1, 1), (1000, 1000)])
async def test_a_page_holds_20_models_unless_told_otherwise(limit: int | None, count: int) -> None:
    configured = config(*(named(id) for id in MANY))
    query = {} if limit is None else {"limit": limit}
    assert await ids(configured, "/v1/models", **query) == MANY[:count]


async def test_openais_clients_get_all_models_at_once() -> None:
    answer = await get(config(*(named(id) for id in MANY)), "/v1/models", limit=2)
    assert [item["id"] for item in answer.json()["data"]] == MANY


@pytest.mark.parametrize(
    "query",
    [
        *({"limit": limit} for limit in ("0", "1001", "-1", "", "x", "1.5", "+1", "٣", "9" * 5000)),
        {"after_id": "a", "before_id": "b"},
        {"after_id": "nobody"},
        {"before_id": "nobody"},
    ],
    ids=lambda query: str(query)[:40],
)
async def test_a_page_that_cannot_be_is_refused(query: dict[str, str]) -> None:
    answer = await get(FIVE, "/v1/models", ANTHROPIC, **query)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert any(error["message"].startswith(f"{name}: ") for name in query)


async def test_a_page_cannot_begin_at_a_model_that_the_caller_may_not_use() -> None:
    answers = [
        await get(KEYED, LISTS[-1], {"x-api-key": "sk-free"}, after_id=id)
        for id in ("for-pro", "nobody")
    ]
    assert answers[0].status_code == 400
    assert answers[0].content == answers[1].content
