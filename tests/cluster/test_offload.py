"""Offload through three replicas: there and back, under policies that operators change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster.harness import ADMIN_KEY, Cluster, Engine
from tests.cluster.load import Streams, ask, clients, until

WAIT_S = 0.4
FAST = {"ttft_ms": 0, "tokens_per_s": 0, "output_tokens": 3, "host": "0.0.0.0"}
ADMIN = {"x-api-key": ADMIN_KEY}
POLICIES = "/admin/routing/offload-routes"
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def described(engines: list[Engine]) -> list[dict[str, Any]]:
    """An engine here, and an account elsewhere with room for one, each relieved by the other."""
    here, spare = engines
    away = f"http://127.0.0.2:{here.port}"  # by an address that is not taken for this host's
    routes = {
        "engine": {"kind": "vllm", "base_url": here.url, "location": "first"},
        "account": {"kind": "vllm", "base_url": away, "location": "first"},
    }
    relief = {"kind": "vllm", "base_url": spare.url, "location": "spare", "weight": 100}
    return [
        {
            "id": id,
            "name": id,
            "provider": f"acme-{id}",
            "route": [route, relief],
            "offload": {"route_id": "spare", "wait_seconds": WAIT_S},
        }
        for id, route in routes.items()
    ]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("offload"),
        module_redis,
        engines={"first": FAST, "spare": FAST},
        models=described,
        routing={
            "affinity": {"enabled": True},
            "upstream_concurrency": {"initial": 1, "max": 1, "acquire_timeout": 30},
            "retry_budget": {"enabled": False},
            "state": {"socket_timeout_ms": 1000},
            "circuit": {"failure_threshold": 1000, "min_availability": 0},
        },
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.reset()
    return shared


def asked(cluster: Cluster, path: str, method: str = "GET", **body: Any) -> httpx.Response:
    url = f"{cluster.replicas[0].url}{path}"
    return httpx.request(method, url, headers=ADMIN, json=body or None, timeout=10)


def bucket(cluster: Cluster) -> dict[str, Any]:
    """The gate of the account."""
    found = asked(cluster, "/admin/upstream-concurrency").raise_for_status().json()
    [one] = found["buckets"]
    return dict(one)


def last_offload(cluster: Cluster) -> dict[str, Any]:
    found = asked(cluster, "/admin/recent-requests/offloads?days=1").raise_for_status().json()
    return dict(found["offloads"][0])


async def is_left_clean(cluster: Cluster) -> None:
    for model in ("engine", "account"):
        await until(lambda model=model: cluster.is_idle(model), f"{model} idle", 10)
        assert not [at for at in cluster.row(model) if at.endswith(":prefill_tokens")]
    await until(
        lambda: (bucket(cluster)["in_flight"], bucket(cluster)["waiting"]) == (0, 0), "a free gate"
    )


async def busy(cluster: Cluster, http: httpx.AsyncClient) -> Streams:
    """Take the account's one place."""
    cluster.engines[0].fault(silent=True, count=1)
    pinned = Streams(http, 1, model="account", pin="account:first", key=ADMIN_KEY)
    await until(lambda: bucket(cluster)["in_flight"] == 1, "the place taken")
    return pinned


async def test_a_stream_that_an_engine_does_not_begin_goes_to_the_offload_route(
    cluster: Cluster,
) -> None:
    first, spare = cluster.engines
    async with clients(cluster.replicas) as [http, *_]:
        first.fault(silent=True, count=1)
        answer = await ask(http, model="engine", stream=True)
        assert (answer.is_whole, answer.endpoint, answer.attempts) == (True, "engine:spare", 2)
        await until(lambda: first.counters()["cancelled"] == 1, "the engine hears of it")
        assert "first:circuit" not in cluster.row("engine")
        noted = last_offload(cluster)
        assert (noted["reason"], noted["offload_endpoint"]) == ("engine_wait", "engine:spare")
        # Nothing is remembered, whatever the weights: the engine is asked first.
        answer = await ask(http, model="engine", stream=True)
        assert (answer.endpoint, spare.counters()["requests"]) == ("engine:first", 1)
    await is_left_clean(cluster)


@STREAMED
async def test_a_request_in_line_for_an_account_goes_to_the_offload_route(
    cluster: Cluster, streamed: bool
) -> None:
    async with clients(cluster.replicas) as [first, second, _]:
        holder = await busy(cluster, first)
        answer = await ask(second, model="account", stream=streamed)
        assert (answer.is_whole, answer.endpoint) == (True, "account:spare")
        await until(lambda: last_offload(cluster)["reason"] == "queue_wait", "a note")
        await holder.hang_up()
    await is_left_clean(cluster)


@STREAMED
async def test_after_a_failed_offload_it_goes_back_and_waits_as_long_as_it_takes(
    cluster: Cluster, streamed: bool
) -> None:
    async with clients(cluster.replicas) as [first, second, _]:
        holder = await busy(cluster, first)
        cluster.engines[1].fault(status=500)
        answer = asyncio.create_task(ask(second, model="account", stream=streamed))
        await until(lambda: cluster.engines[1].counters()["requests"] == 1, "the offload tried")
        await until(lambda: bucket(cluster)["waiting"] == 1, "in line again")
        await asyncio.sleep(2 * WAIT_S)
        assert not answer.done()
        await holder.hang_up()
        got = await answer
        assert (got.is_whole, got.endpoint, got.attempts) == (True, "account:first", 3)
        await until(lambda: last_offload(cluster)["endpoint"] == "account:first", "a note")
    await is_left_clean(cluster)


@pytest.mark.parametrize("phase", ["line", "engine", "offload", "back"])
async def test_a_client_that_hangs_up_in_any_phase_leaves_nothing_behind(
    cluster: Cluster, phase: str
) -> None:
    engine, spare = cluster.engines
    async with clients(cluster.replicas) as [first, second, _]:
        holder = None if phase in ("engine", "offload") else await busy(cluster, first)
        if phase == "back":
            spare.fault(status=500)
        elif phase == "offload":
            spare.fault(silent=True)
        if phase in ("engine", "offload"):
            engine.fault(silent=True)
        client = Streams(second, 1, model="account" if holder else "engine")
        reached = {
            "line": lambda: bucket(cluster)["waiting"] == 1,
            "engine": lambda: engine.counters()["active"] == 1,
            "offload": lambda: spare.counters()["active"] == 1,
            "back": lambda: spare.counters()["requests"] and bucket(cluster)["waiting"] == 1,
        }[phase]
        await until(reached, phase)
        await client.hang_up()
        await until(lambda: spare.counters()["active"] == 0, "an idle offload route")
        if holder:
            await until(lambda: bucket(cluster)["waiting"] == 0, "nobody in line")
            assert bucket(cluster)["in_flight"] == 1
            await holder.hang_up()
    await is_left_clean(cluster)


async def test_operators_change_a_policy_for_all_replicas_at_once(cluster: Cluster) -> None:
    found = asked(cluster, f"{POLICIES}/engine").json()["offload"]
    assert (found["route_id"], found["active"], found["is_override"]) == ("spare", True, False)
    body = {"route_id": "first", "wait_seconds": 9, "max_input_tokens": 50}
    found = asked(cluster, f"{POLICIES}/engine", "PUT", **body).json()["offload"]
    assert (found["route_id"], found["is_override"]) == ("first", True)
    async with clients(cluster.replicas) as https:
        for http in https:
            assert (await ask(http, model="engine")).endpoint == "engine:spare"
        # Too large to be offloaded, and the only other is down: what is kept stays so.
        cluster.redis.hset(
            "gw:{m:engine}:endpoints",
            mapping={"spare:circuit": "open", "spare:opened_at_ms": round(time.time() * 1000)},
        )
        answer = await ask(https[0], "x" * 400, model="engine")
        assert (answer.status, "max_input" in answer.message) == (503, True)
        assert (await ask(https[1], model="engine")).endpoint == "engine:first"
        cluster.redis.delete("gw:{m:engine}:endpoints")
        # Out of service it is no offload route any more, and is told to be none.
        asked(cluster, "/admin/routing/weights/engine/first", "PUT", weight=0)
        found = asked(cluster, f"{POLICIES}/engine").json()["offload"]
        assert (found["active"], found["inactive_reason"]) == (False, "weight_override")
        asked(cluster, "/admin/routing/weights/engine/first", "DELETE")
        asked(cluster, f"{POLICIES}/engine", "DELETE")
        for http in https:
            assert (await ask(http, model="engine")).endpoint == "engine:first"
