"""Keys made over HTTP: what they open, until when, and what becomes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.cluster.harness import ADMIN_KEY, body, wait_until
from tests.integration.conftest import KEYS as FILE
from tests.integration.conftest import Gateway

PATH = "/v1/chat/completions"
KEYS = "/admin/keys"
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
HOLDS_S = 5.0
"""Within which a change must hold."""


@pytest.fixture(params=["keys.yaml", "no keys.yaml"])
def either(request: pytest.FixtureRequest) -> Gateway:
    """A gateway that needs keys, or one that does not; made ones count in both."""
    name = "guarded" if request.param == "keys.yaml" else "gateway"
    gateway: Gateway = request.getfixturevalue(name)
    return gateway


@pytest.fixture
async def admin(guarded: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with guarded.http(headers=ADMIN) as client:
        yield client


async def make(admin: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await admin.post(KEYS, json=asked)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def status(http: httpx.AsyncClient, key: str, model: str = "pair") -> int:
    headers = {"authorization": f"Bearer {key}"}
    return (await http.post(PATH, json=body(model=model), headers=headers)).status_code


async def models(http: httpx.AsyncClient, key: str) -> set[str]:
    answer = await http.get("/v1/models", headers={"x-api-key": key})
    assert answer.status_code == 200, answer.text
    return {model["id"] for model in answer.json()["data"]}


async def until_holds(ready: Callable[[], Awaitable[bool]]) -> None:
    """A change holds within its time, and a little more for a slow machine."""
    deadline = time.monotonic() + HOLDS_S + 5
    while not await ready():
        assert time.monotonic() < deadline, "the change does not hold"
        await asyncio.sleep(0.1)


async def test_made_key_opens_what_it_says_and_nothing_else(either: Gateway) -> None:
    async with either.http(headers=ADMIN) as admin, either.http() as http:
        made = await make(admin, role="pro", models=["chat", "pro-only"])
        assert made["models"] == ["pro-only", "vendor/team/chat"]
        assert await status(http, made["key"], "pro-only") == 200
        assert await status(http, made["key"], "chat") == 200
        assert await status(http, made["key"], "pair") == 404
        assert await models(http, made["key"]) == {"pro-only", "vendor/team/chat"}
        seen = await http.get(KEYS, headers={"x-api-key": made["key"]})
        assert (seen.status_code, seen.json()["error"]["code"]) == (403, "permission_denied")
        listed = (await admin.get(KEYS)).json()["keys"]
        assert made["id"] in {one["id"] for one in listed}


async def test_made_key_names_its_caller_in_the_log_and_its_secret_nowhere(
    admin: httpx.AsyncClient, guarded: Gateway
) -> None:
    made = await make(admin, id="org/carol")
    assert await status(admin, made["key"]) == 200
    (replica,) = guarded.cluster.replicas

    def lines() -> list[dict[str, Any]]:
        return [one for one in replica.events("request") if one.get("caller") == "org/carol"]

    assert wait_until(lines, "a line of carol's", 5)
    assert {one["admin"] for one in replica.events("key_made")} == {"admin"}
    kept = str(guarded.cluster.redis.hgetall("gw:{cluster}:keys"))
    assert "id=org/carol" in kept
    for secret in (made["key"], made["key"].removeprefix("sk-concord-")):
        assert secret not in kept
        assert secret not in replica.text()


async def test_change_holds_within_five_seconds(admin: httpx.AsyncClient, guarded: Gateway) -> None:
    made = await make(admin)
    assert await status(admin, made["key"], "pro-only") == 404

    changed = await admin.patch(f"{KEYS}/{made['id']}", json={"role": "pro"})
    assert (changed.status_code, changed.json()["role"]) == (200, "pro")

    async def opened() -> bool:
        return await status(admin, made["key"], "pro-only") == 200

    await until_holds(opened)
    assert "key" not in changed.json()


async def test_revoked_key_is_refused_within_five_seconds(
    admin: httpx.AsyncClient, guarded: Gateway
) -> None:
    made = await make(admin)
    assert await status(admin, made["key"]) == 200

    revoked = await admin.delete(f"{KEYS}/{made['id']}")
    assert revoked.json() == {"id": made["id"], "revoked": True}

    async def refused() -> bool:
        return await status(admin, made["key"]) == 401

    await until_holds(refused)
    assert (await admin.get(f"{KEYS}/{made['id']}")).status_code == 404


async def test_expired_key_is_refused_and_can_be_prolonged(
    admin: httpx.AsyncClient, guarded: Gateway
) -> None:
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    made = await make(admin, expires=past)
    async with guarded.http(headers={"x-api-key": made["key"]}) as http:
        answer = await http.post(PATH, json=body(model="pair"))
        assert answer.status_code == 401
        assert "expired" in answer.json()["error"]["message"]

    await admin.patch(f"{KEYS}/{made['id']}", json={"expires": None})

    async def valid() -> bool:
        return await status(admin, made["key"]) == 200

    await until_holds(valid)


@pytest.mark.parametrize("id", [key["id"] for key in FILE])
async def test_keys_of_the_file_answer_409(
    admin: httpx.AsyncClient, guarded: Gateway, id: str
) -> None:
    for answer in (
        await admin.post(KEYS, json={"id": id}),
        await admin.patch(f"{KEYS}/{id}", json={"rpm": 5}),
        await admin.delete(f"{KEYS}/{id}"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    shown = (await admin.get(f"{KEYS}/{id}")).json()
    assert (shown["source"], shown["rpm"]) == ("file", None)
    assert not guarded.cluster.redis.exists("gw:{cluster}:keys")


async def test_unknown_model_is_refused_with_what_may_have_been_meant(
    admin: httpx.AsyncClient, guarded: Gateway
) -> None:
    answer = await admin.post(KEYS, json={"models": ["pare"]})
    assert answer.status_code == 400
    assert "did you mean pair?" in answer.json()["error"]["message"]
