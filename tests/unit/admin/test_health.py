"""What `/health/deep` and `/routing` tell of endpoints that are well, and held back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from gateway.api.health import Health
from gateway.api.lifecycle import Lifecycle
from gateway.auth.keys import Authenticator
from gateway.core.limits import EndpointLimits, Limit
from gateway.errors import StateUnavailable
from tests.fakes.builders import config, key, model, route
from tests.fakes.keys import no_made_keys
from tests.unit.admin.conftest import Embedded

CONFIG = config(
    model(
        route("a", limits=EndpointLimits(rpm=Limit(600))),
        route("b", limits=EndpointLimits(max_parallel_requests=Limit(2))),
        route("c"),
    ),
    keys=[key("sk-ops", "ops", role="admin")],
)


class Away(Embedded):
    """A store whose Redis is away."""

    async def rows(self, model_id: str, **_: Any) -> Any:
        raise StateUnavailable


def client(store: Embedded) -> httpx.AsyncClient:
    health = Health(
        CONFIG,
        store,
        Authenticator(CONFIG, no_made_keys()),
        Lifecycle(),
        state_is_available=lambda: True,
    )
    transport = httpx.ASGITransport(Starlette(routes=health.routes()))
    headers = {"x-api-key": "sk-ops"}
    return httpx.AsyncClient(transport=transport, base_url="http://t", headers=headers)


@pytest.fixture
async def http(store: Embedded) -> AsyncIterator[httpx.AsyncClient]:
    """Of a model with an endpoint that pauses and has a limit, one at its limit, and one free."""
    now_ms = int((await store.redis("TIME"))[0]) * 1000
    await store.edit("m", a__cooldown=f"until_ms={now_ms + 9_000} length_ms=9000 reason=429")
    await store.edit("m", a__rpm=f"sliding 60000 {now_ms // 2000} 7 7", b__inflight="2")
    async with client(store) as http:
        yield http


@pytest.mark.parametrize(("path", "of"), [("/health/deep", "providers"), ("/routing", "endpoints")])
async def test_pauses_and_limits_are_told_with_what_is_left_of_them(
    path: str, of: str, http: httpx.AsyncClient
) -> None:
    found = (await http.get(path)).json()[of]

    assert list(found) == ["m:a", "m:b", "m:c"]
    a, b, c = found.values()
    assert 0 < a["cooldown"].pop("left_s") <= 9
    assert a["cooldown"] == {"reason": "429"}
    assert 50 < a["limits"][0].pop("reset_s") <= 62
    assert a["limits"] == [
        {
            "limit": "rpm",
            "mode": "enforce",
            "most": 600,
            "taken": 7,
            "left": 593,
            "would_have_refused": 0,
        }
    ]
    assert b["cooldown"] is None
    assert [(one["limit"], one["left"]) for one in b["limits"]] == [("max_parallel_requests", 0)]
    assert (c["cooldown"], c["limits"]) == (None, [])


async def test_an_endpoint_that_pauses_or_is_at_its_limit_degrades_nothing(
    http: httpx.AsyncClient,
) -> None:
    assert (await http.get("/health/deep")).json()["status"] == "healthy"


async def test_while_redis_is_away_both_pages_tell_what_the_files_say(store: Embedded) -> None:
    async with client(Away(store.runner, store.keys)) as http:
        deep, routing = (await http.get("/health/deep")).json(), (await http.get("/routing")).json()

    assert (deep["state_available"], deep["providers"]) == (False, {})
    assert (list(routing["routes"]), routing["endpoints"]) == (["m"], {})
