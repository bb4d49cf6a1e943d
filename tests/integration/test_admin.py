"""What an operator changes holds at once, and what is explained happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.cluster.harness import ADMIN_KEY, Cluster, Engine, body, ids, wait_until
from tests.integration.conftest import FAST, Gateway, Make

PATH = "/v1/chat/completions"
WEIGHTS = "/admin/routing/weights"
PROVIDERS = "/admin/routing/providers"
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}


@pytest.fixture(scope="module")
def loyal_gateway(make_gateway: Make) -> Gateway:
    """Keeps callers where they were."""
    return make_gateway({"affinity": {"enabled": True}})


@pytest.fixture
def gateway(loyal_gateway: Gateway) -> Iterator[Gateway]:
    loyal_gateway.reset()
    yield loyal_gateway
    wait_until(loyal_gateway.is_idle, "nothing claimed or in flight", 5)


async def endpoint(http: httpx.AsyncClient, model: str = "pair", **headers: str) -> str | None:
    answer = await http.post(PATH, json=body(model=model), headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-concord-endpoint"]


def everything(gateway: Gateway) -> dict[str, Any]:
    """All that Redis holds of models."""
    redis = gateway.cluster.redis
    return {key: redis.dump(key) for key in redis.keys("gw:{m:*")}


async def test_weight_holds_from_the_next_request_on_and_until_it_is_dropped(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    first, second = f"pair:{gateway.first.location}", f"pair:{gateway.second.location}"
    assert await endpoint(admin) == first
    # When the drawn route is zeroed
    answer = await admin.put(f"{WEIGHTS}/pair/{gateway.first.location}", json={"weight": 0})
    # Then the other serves, though the caller was pinned
    assert (answer.status_code, answer.json()["effective_weight"]) == (200, 0.0)
    assert await endpoint(admin) == second
    # And none may be left without
    refused = await admin.put(f"{WEIGHTS}/pair/{second}", json={"weight": 0})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "cannot zero all routes for model 'pair'"
    # When it is dropped, and the caller let go
    await admin.delete(f"{WEIGHTS}/pair/{first}")
    await admin.delete("/admin/routing/pins/pair/admin")
    # Then the files' weight holds
    listed = (await admin.get(f"{WEIGHTS}/pair")).json()["routes"]
    assert [one["override_weight"] for one in listed] == [None, None]
    assert await endpoint(admin) == first


async def test_ids_with_slashes_and_odd_letters_are_understood_in_paths(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    at = gateway.first.location
    for path in (f"vendor/team/chat/{at}", f"vendor%2Fteam%2Fchat/vendor%2Fteam%2Fchat%3A{at}"):
        answer = await admin.put(f"{WEIGHTS}/{path}", json={"weight": 2})
        assert answer.json()["endpoint_id"] == f"vendor/team/chat:{at}"
    alias = await admin.get(f"{WEIGHTS}/chat")
    assert alias.status_code == 404
    assert "alias: say 'vendor/team/chat'" in alias.json()["error"]["message"]
    strange = await admin.get(f"{WEIGHTS}/%ED%A0%80/%F0%9F%90%98")
    assert strange.status_code == 404
    assert set(strange.json()) == {"error"}


async def test_provider_of_whole_models_is_refused_and_can_be_forced(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    refused = await admin.put(f"{PROVIDERS}/vllm", json={"disabled": True})
    assert refused.status_code == 400
    assert "pair, alone," in refused.json()["error"]["message"]
    assert everything(gateway) == {}

    forced = await admin.put(f"{PROVIDERS}/vllm", json={"disabled": True, "force": True})
    assert forced.json()["disabled"] is True
    answer = await admin.post(PATH, json=body(model="pair"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_healthy_upstream")

    assert (await admin.delete(f"{PROVIDERS}/vllm")).json()["disabled"] is False
    assert await endpoint(admin)


async def test_each_id_goes_where_explain_has_said(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given two routes of one weight
    for engine in (gateway.first, gateway.second):
        await admin.put(f"{WEIGHTS}/pair/{engine.location}", json={"weight": 1})
    seen = set()
    for request_id in ids("explained", 40):
        # When a request of a new conversation is explained, and then made
        session = {"session": request_id, "caller": "admin", "request_id": request_id}
        question = {"model": "pair", **session}
        told = (await admin.get("/admin/routing/explain", params=question)).json()
        again = (await admin.get("/admin/routing/explain", params=question)).json()
        headers = {"x-request-id": request_id, "x-session-id": request_id}
        # Then it goes there
        assert told == again
        assert told["pin"] == "made"
        assert await endpoint(admin, **headers) == told["drawn"]
        seen.add(told["drawn"])
        # And the next one of that conversation is told to stay
        stays = (await admin.get("/admin/routing/explain", params=question)).json()
        assert (stays["drawn"], stays["pin"]) == (told["drawn"], "kept")
    assert len(seen) == 2


async def test_pin_is_found_and_dropped_by_the_callers_public_id(
    admin: httpx.AsyncClient, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    pin = "/admin/routing/pins/pair/ip:127.0.0.1"
    assert (await admin.get(pin)).json()["endpoint"] is None
    at = await endpoint(http)
    found = (await admin.get(pin)).json()
    assert (found["model"], found["caller"], found["endpoint"]) == ("pair", "ip:127.0.0.1", at)
    assert 0 < found["expires_in_ms"] <= 300_000
    assert (await admin.get(pin, params={"session": "other"})).json()["endpoint"] is None
    assert (await admin.delete(pin)).json()["endpoint"] == at
    assert (await admin.get(pin)).json()["endpoint"] is None


async def test_explaining_writes_nothing(admin: httpx.AsyncClient, gateway: Gateway) -> None:
    await endpoint(admin)
    gateway.fault(status=503)
    for _ in range(3):
        await admin.post(PATH, json=body(model="alone"))
    before = everything(gateway)
    for model in ("pair", "alone", "vendor/team/chat"):
        found = await admin.get("/admin/routing/explain", params={"model": model, "caller": "x"})
        assert found.status_code == 200
    refused = (await admin.get("/admin/routing/explain", params={"model": "alone"})).json()
    assert refused["drawn"] is None
    assert [one["reason"] for one in refused["candidates"]] == ["circuit_open"]
    assert refused["candidates"][0]["holds"]["failures"] == 3
    assert everything(gateway) == before


async def test_circuit_is_closed_at_an_operators_word(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    at = gateway.first.location
    gateway.fault(status=503)
    for _ in range(3):
        await admin.post(PATH, json=body(model="alone"))
    gateway.first.heal()
    assert (await admin.post(PATH, json=body(model="alone"))).status_code == 503
    answer = await admin.delete(f"/admin/routing/circuits/alone/{at}")
    assert answer.json() == {"endpoint": f"alone:{at}", "was": "open"}
    assert await endpoint(admin, "alone") == f"alone:{at}"


async def test_status_tells_of_endpoints_replicas_and_redis(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    await endpoint(admin)
    status = (await admin.get("/admin/status")).json()
    assert len(status["endpoints"]) == 14
    assert status["endpoints"][f"pair:{gateway.first.location}"]["circuit"] == "closed"
    assert set(status["claims"]) == {one.rpartition(":")[0] for one in status["endpoints"]}
    assert status["redis"]["policy"] == "noeviction"
    assert (status["gates"], status["coordinator"]) == ([], None)


@pytest.mark.parametrize("key", [None, "sk-alice-of-the-tests", "sk-wrong"])
async def test_others_than_admins_are_turned_away(key: str | None, guarded: Gateway) -> None:
    async with guarded.http(headers={"x-api-key": key} if key else {}) as http:
        answer = await http.put(f"{WEIGHTS}/pair/x", json={"weight": 0})
    assert answer.status_code == (403 if key == "sk-alice-of-the-tests" else 401)
    assert set(answer.json()) == {"error"}


def one_model(engines: list[Engine]) -> list[dict[str, Any]]:
    """`m`, on the first engine."""
    route = {"kind": "vllm", "base_url": engines[0].url}
    return [{"id": "m", "name": "M", "provider": "vllm", "route": [route]}]


@pytest.fixture
def changing(tmp_path: Path, private_redis: str) -> Iterator[Cluster]:
    """A replica whose files a test may change."""
    engines = {"engine-a": FAST}
    with Cluster(tmp_path, private_redis, engines=engines, models=one_model, replicas=1) as cluster:
        yield cluster


async def test_reload_serves_the_files_as_they_are_now(changing: Cluster) -> None:
    async with httpx.AsyncClient(base_url=changing.url, headers=ADMIN) as admin:
        before = (await admin.get("/readyz")).json()["config_digest"]
        same = (await admin.post("/admin/reload")).json()
        unchanged = {"changed": False, "needs_restart": [], "warnings": []}
        assert same.pop("replica") in (await admin.get("/admin/status")).text
        assert same == {"config_digest": before, **unchanged}
        # Given a second model in the files
        models = one_model(changing.engines)
        changing.write("models.yaml", {"models": [*models, {**models[0], "id": "n"}]})
        assert (await admin.post(PATH, json=body(model="n"))).status_code == 404
        # When they are read anew
        reloaded = (await admin.post("/admin/reload")).json()
        # Then it is served, and the operator surface knows it
        assert reloaded["changed"] is True
        assert reloaded["config_digest"] == (await admin.get("/readyz")).json()["config_digest"]
        assert await endpoint(admin, "n")
        assert (await admin.get(f"{WEIGHTS}/n")).status_code == 200


async def test_files_that_cannot_be_served_are_told_and_the_old_ones_stay(
    changing: Cluster,
) -> None:
    async with httpx.AsyncClient(base_url=changing.url, headers=ADMIN) as admin:
        before = (await admin.get("/readyz")).json()["config_digest"]
        wrong = [{**one_model(changing.engines)[0], "wieght": 1}]
        (changing.config / "models.yaml").write_text(yaml.safe_dump({"models": wrong}), "utf-8")
        answer = await admin.post("/admin/reload")
        assert answer.status_code == 422
        assert answer.json()["error"]["code"] == "invalid_config"
        (problem,) = answer.json()["problems"]
        assert (problem["severity"], problem["file"]) == ("error", "models.yaml")
        assert problem["path"] == "models[0].wieght"
        assert (await admin.get("/readyz")).json()["config_digest"] == before
        assert await endpoint(admin, "m")
