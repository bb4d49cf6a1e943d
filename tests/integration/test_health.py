"""Probes answer everybody; what tells of the topology answers admins, and tells no secret."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.cluster.harness import ADMIN_KEY, body, wait_until
from tests.integration.conftest import UPSTREAM_KEY, Gateway

PATH = "/v1/chat/completions"


async def deep(admin: httpx.AsyncClient) -> dict[str, Any]:
    answer = await admin.get("/health/deep")
    assert answer.status_code == 200
    assert UPSTREAM_KEY not in answer.text
    assert ADMIN_KEY not in answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("path", ["/livez", "/health/liveliness"])
async def test_a_live_process_says_so(path: str, http: httpx.AsyncClient) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


@pytest.mark.parametrize("path", ["/readyz", "/health/ready", "/health/readiness"])
async def test_a_ready_replica_says_so_and_names_its_config(
    path: str, http: httpx.AsyncClient
) -> None:
    answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"
    assert answer.json()["config_digest"]


async def test_the_short_look_tells_no_names(http: httpx.AsyncClient, gateway: Gateway) -> None:
    answer = await http.get("/health")
    assert answer.json() == {"status": "healthy", "routes_configured": 14}


async def test_endpoints_that_nobody_has_asked_are_healthy(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    found = await deep(admin)
    assert found["status"] == "healthy"
    assert found["state_available"] is True
    assert found["providers"][f"pair:{gateway.first.location}"] == {
        "availability": 1.0,
        "circuit_state": "closed",
        "last_error_status": None,
        "consecutive_auth_rejections": 0,
        "inflight": 0,
        "unreachable_from": {},
        "cooldown": None,
        "limits": [],
    }
    assert len(found["providers"]) == found["routes_configured"] == 14


async def test_an_open_circuit_and_a_rejected_key_are_seen(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given one endpoint that has failed three times, and one that has refused our key once
    gateway.fault(status=503)
    for _ in range(3):
        await admin.post(PATH, json=body(model="alone"))
    gateway.fault(status=401)
    await admin.post(PATH, json=body(model="vendor/team/chat"))
    # When an admin looks
    found = await deep(admin)
    # Then both show, and so does the whole
    assert found["status"] == "degraded"
    broken = found["providers"][f"alone:{gateway.first.location}"]
    assert (broken["circuit_state"], broken["last_error_status"]) == ("open", 503)
    assert 0.72 < broken["availability"] < 0.74
    refused = found["providers"][f"vendor/team/chat:{gateway.first.location}"]
    assert (refused["circuit_state"], refused["consecutive_auth_rejections"]) == ("closed", 1)


@pytest.mark.parametrize("typed", ["junk", "", "nan", "inf", "1e999"])
async def test_what_an_operator_has_mistyped_breaks_neither_the_look_nor_the_routing(
    typed: str, admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given a row edited by hand, with junk in every field
    at = gateway.first.location
    names = ("availability", "inflight", "last_status", "auth_rejections", "failures", "probe")
    junk = {f"{at}:{name}": typed for name in names}
    gateway.cluster.redis.hset("gw:{m:alone}:endpoints", mapping=junk)
    # When an admin looks, and a request comes
    found = await deep(admin)
    answer = await admin.post(PATH, json=body(model="alone"))
    # Then junk counts as unset
    assert found["providers"][f"alone:{at}"]["availability"] == 1.0
    assert answer.status_code == 200
    wait_until(lambda: not gateway.cluster.claims("alone"), "no claim left", 5)
    gateway.cluster.redis.hdel("gw:{m:alone}:endpoints", *junk)


async def test_routes_out_of_service_are_listed_with_the_reason_and_are_nobodys_failure(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given one route zeroed at run time, and the provider of all routes disabled
    at = gateway.second.location
    await admin.put(f"/admin/routing/weights/pair/{at}", json={"weight": 0})
    forced = {"disabled": True, "force": True}
    await admin.put("/admin/routing/providers/vllm", json=forced)
    # When an admin looks
    found = await deep(admin)
    # Then every route is excluded, that one for both reasons
    reasons = {one["endpoint_id"]: one["reasons"] for one in found["route_exclusions"]}
    assert len(reasons) == found["routes_configured"]
    assert reasons.pop(f"pair:{at}") == ["weight_override", "provider_disabled"]
    assert set(map(tuple, reasons.values())) == {("provider_disabled",)}
    one = found["route_exclusions"][0]
    assert set(one) == {
        "model_id",
        "endpoint_id",
        "provider",
        "base_url",
        "configured_weight",
        "effective_weight",
        "reasons",
    }
    assert (one["configured_weight"], one["effective_weight"]) == (pytest.approx(1.0), 0.0)
    # And each endpoint says so, though none has been asked
    excluded = found["providers"][f"pair:{at}"]
    assert excluded["excluded_from_models"] == ["pair"]
    assert excluded["exclusion_reasons"] == ["provider_disabled", "weight_override"]
    assert found["status"] == "healthy"
    # When all is as it was
    await admin.delete("/admin/routing/providers/vllm")
    await admin.delete(f"/admin/routing/weights/pair/{at}")
    # Then nothing is excluded any more
    found = await deep(admin)
    assert found["route_exclusions"] == []
    assert "exclusion_reasons" not in found["providers"][f"pair:{at}"]


async def test_the_routing_page_shows_shares_by_name_and_alias(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    found = (await admin.get("/routing")).json()
    assert found["routes"]["chat"] == found["routes"]["vendor/team/chat"]
    assert [route["weight"] for route in found["routes"]["pair"]] == ["100%", "0%"]
    assert found["routes"]["pair"][1]["base_url"] == gateway.second.url
    assert UPSTREAM_KEY not in str(found)


@pytest.mark.parametrize("path", ["/health/deep", "/routing"])
@pytest.mark.parametrize("key", [None, "sk-alice-of-the-tests", "sk-wrong"])
async def test_others_than_admins_see_none_of_it(
    path: str, key: str | None, guarded: Gateway
) -> None:
    headers = {"x-api-key": key} if key else {}
    async with guarded.http(headers=headers) as http:
        answer = await http.get(path)
    assert answer.status_code == (403 if key == "sk-alice-of-the-tests" else 401)
    assert set(answer.json()) == {"error"}
