"""Offload policies over HTTP: what is refused and why, what is told, and what is logged."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.admin.gates import GateReader
from gateway.admin.offload import OffloadRoutes
from gateway.admin.offload_surface import OFFLOADS, OffloadSurface
from gateway.admission.secret import Secret
from gateway.auth.keys import Authenticator
from gateway.auth.made import MadeKeys
from gateway.config.strategies import ExpectedTtftParams, FixedParams
from gateway.core.offload import Offload
from gateway.errors import StateUnavailable
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.key_store import KeyStore
from gateway.state.offloads import OffloadLog
from gateway.state.pool_store import PoolStore
from tests.fakes.builders import config, key, model, route
from tests.fakes.surfaces import client_of
from tests.unit.admin.conftest import Embedded

GIVEN = {"route_id": "b", "wait_seconds": 3}
NOT_FIXED = {"router": "expected_ttft", "router_params": ExpectedTtftParams()}
COMPOSED = {"router_params": FixedParams(hybrid_composition=True)}


def pair(model_id: str) -> list[Any]:
    return [route("a", model_id=model_id), route("b", model_id=model_id)]


MODELS = (
    model(*pair("m"), aliases=("short",)),
    model(*pair("org/large"), id="org/large", offload=Offload(location="b", wait_s=7.0)),
    model(*pair("compared"), id="compared", **NOT_FIXED),
    model(*pair("composed"), id="composed", **COMPOSED),
    model(route("a", model_id="alone"), id="alone"),
)


@pytest.fixture
async def http(store: Embedded) -> AsyncIterator[httpx.AsyncClient]:
    of = config(*MODELS, keys=[key("sk-ops", "ops", role="admin")])
    gates = GateStore(store.runner, store.keys, Channels(store.keys))
    surface = OffloadSurface(
        of,
        Authenticator(of, MadeKeys(KeyStore(store.runner, store.keys))),
        OffloadRoutes(of, store, OffloadLog(store.runner, store.keys)),
        GateReader(of, gates, PoolStore(store.runner, store.keys), Secret("s")),
    )
    async with client_of(surface.routes(), "sk-ops") as client:
        yield client


def refusal(answer: httpx.Response) -> dict[str, Any]:
    assert set(answer.json()) == {"error"}
    found: dict[str, Any] = answer.json()["error"]
    return found


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [
        (record.getMessage(), record.fields)  # type: ignore[attr-defined]
        for record in caplog.records
        if record.getMessage().startswith("offload_route_")
    ]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"route_id": None}, "`$.route_id`"),
        ({"route_id": 5}, "`$.route_id`"),
        ({"route_id": ""}, "`$.route_id`"),
        ({"route_id": "  "}, "no route '  '"),
        ({"route_id": "x"}, "Its endpoints: a, b."),
        ({"wait_seconds": None}, "`$.wait_seconds`"),
        ({"wait_seconds": 0}, "`$.wait_seconds`"),
        ({"wait_seconds": -1}, "`$.wait_seconds`"),
        ({"wait_seconds": float("nan")}, "malformed"),
        ({"wait_seconds": float("inf")}, "malformed"),
        ({"wait_seconds": True}, "`$.wait_seconds`"),
        ({"wait_seconds": "5"}, "`$.wait_seconds`"),
        ({"wait_seconds": 86_401}, "`$.wait_seconds`"),
        *(
            ({limit: wrong}, f"`$.{limit}`")
            for limit in ("engine_queue_limit", "max_input_tokens")
            for wrong in (0, -1, True, 1.5, "100", 10**20)
        ),
        ({"wait": 3}, "unknown field `wait`"),
    ],
    ids=str,
)
async def test_a_policy_that_is_none_is_refused_with_the_reason_and_changes_nothing(
    http: httpx.AsyncClient,
    store: Embedded,
    caplog: pytest.LogCaptureFixture,
    changed: dict[str, Any],
    told: str,
) -> None:
    with caplog.at_level(logging.INFO, "concord"):
        answer = await http.put(f"{OFFLOADS}/m", content=json.dumps({**GIVEN, **changed}))
    assert answer.status_code == 400
    assert told in refusal(answer)["message"]
    assert await store.everything() == {}
    assert logged(caplog) == []


@pytest.mark.parametrize("left_out", GIVEN)
async def test_a_route_and_a_wait_must_be_given(http: httpx.AsyncClient, left_out: str) -> None:
    answer = await http.put(
        f"{OFFLOADS}/m", json={name: value for name, value in GIVEN.items() if name != left_out}
    )
    assert answer.status_code == 400
    assert f"missing required field `{left_out}`" in refusal(answer)["message"]


@pytest.mark.parametrize(
    ("of", "told"),
    [("compared", "expected_ttft"), ("composed", "hybrid_composition"), ("alone", "one route")],
)
async def test_a_model_that_can_have_no_offload_route_is_refused_one(
    http: httpx.AsyncClient, store: Embedded, of: str, told: str
) -> None:
    answer = await http.put(f"{OFFLOADS}/{of}", json={**GIVEN, "route_id": "a"})
    error = refusal(answer)
    assert (answer.status_code, error["code"]) == (422, "not_offloadable")
    assert told in error["message"]
    assert await store.everything() == {}


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_a_model_that_is_not_there_is_told_to_be_none(
    http: httpx.AsyncClient, method: str
) -> None:
    answer = await http.request(method, f"{OFFLOADS}/n", json=GIVEN)
    assert (answer.status_code, refusal(answer)["param"]) == (404, "model")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_an_alias_has_no_policy_and_names_its_model(
    http: httpx.AsyncClient, store: Embedded, method: str
) -> None:
    answer = await http.request(method, f"{OFFLOADS}/short", json=GIVEN)
    assert answer.status_code == 404
    assert "'short' is an alias: say 'm'." in refusal(answer)["message"]
    assert await store.everything() == {}


async def test_a_policy_is_set_told_and_dropped_under_the_models_epoch(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await http.get(f"{OFFLOADS}/m")).json() == {
        "model_id": "m",
        "offload": None,
        "epoch": 0,
    }
    given = {**GIVEN, "engine_queue_limit": 2, "max_input_tokens": 9}
    with caplog.at_level(logging.INFO, "concord"):
        answer = await http.put(f"{OFFLOADS}/m", json=given)
        again = (await http.get(f"{OFFLOADS}/m")).json()
        dropped = (await http.delete(f"{OFFLOADS}/m")).json()
    found = answer.json()
    assert (answer.status_code, again) == (200, found)
    offload = found["offload"]
    assert offload.pop("updated_at") is not None
    assert offload == {
        **given,
        "model_id": "m",
        "endpoint_id": "m:b",
        "active": True,
        "inactive_reason": None,
        "is_override": True,
        "updated_by": "ops",
    }
    assert isinstance(offload["wait_seconds"], float)
    assert (dropped["offload"], dropped["epoch"] > found["epoch"] > 0) == (None, True)
    assert logged(caplog) == [
        ("offload_route_set", {"admin": "ops", "model": "m", **given}),
        ("offload_route_dropped", {"admin": "ops", "model": "m"}),
    ]


async def test_dropped_the_files_policy_holds_again_also_of_an_id_with_slashes(
    http: httpx.AsyncClient,
) -> None:
    path = f"{OFFLOADS}/org/large"
    changed = (await http.put(path, json={**GIVEN, "route_id": "org/large:a"})).json()["offload"]
    assert (changed["route_id"], changed["is_override"]) == ("a", True)
    found = (await http.delete(path)).json()["offload"]
    assert (found["route_id"], found["wait_seconds"], found["is_override"]) == ("b", 7.0, False)
    assert (found["updated_at"], found["updated_by"]) == (None, None)


async def test_a_policy_of_a_model_that_is_gone_can_be_dropped(
    http: httpx.AsyncClient, store: Embedded
) -> None:
    key = store.keys.model("gone")["overrides"]
    await store.redis("HSET", key, "offload", "location=a wait_s=1")
    answer = await http.delete(f"{OFFLOADS}/gone")
    assert (answer.status_code, answer.json()["offload"]) == (200, None)
    assert await store.redis("HGETALL", key) == {}


async def test_all_policies_are_listed_with_why_one_has_no_effect(
    http: httpx.AsyncClient, store: Embedded
) -> None:
    for model_id in ("m", "compared"):
        key = store.keys.model(model_id)["overrides"]
        await store.redis("HSET", key, "offload", "location=b wait_s=1")
    await store.override_weight("m", location="b", weight=0.0, routes=[("a", "a", 1.0)])
    found = (await http.get(OFFLOADS)).json()
    assert (found["queue_enabled"], found["max_wait_seconds"]) == (True, 86_400)
    listed = {one["model_id"]: one["inactive_reason"] for one in found["offload_routes"]}
    assert listed == {"m": "weight_override", "org/large": None, "compared": "strategy"}


@pytest.mark.parametrize("query", ["days=0", "days=-1", "days=8", "days=nan", "days=x", "day=1"])
async def test_a_look_back_that_is_none_is_refused(http: httpx.AsyncClient, query: str) -> None:
    answer = await http.get(f"/admin/recent-requests/offloads?{query}")
    assert answer.status_code == 400
    assert "day" in refusal(answer)["message"]


@pytest.mark.parametrize(
    ("method", "name"), [("PUT", "offload_route_set"), ("DELETE", "offload_route_dropped")]
)
@pytest.mark.parametrize("may_have_happened", [True, False])
async def test_a_change_that_got_no_answer_is_logged_as_unsure_if_it_may_have_happened(
    http: httpx.AsyncClient,
    store: Embedded,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
    name: str,
    may_have_happened: bool,
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise StateUnavailable(may_have_happened=may_have_happened)

    monkeypatch.setattr(store, "override_offload", lost)
    with caplog.at_level(logging.INFO, "concord"):
        answer = await http.request(method, f"{OFFLOADS}/m", json=GIVEN)
    assert answer.status_code == 503
    told = [(event, fields["is_sure"]) for event, fields in logged(caplog)]
    assert told == ([(name, False)] if may_have_happened else [])
