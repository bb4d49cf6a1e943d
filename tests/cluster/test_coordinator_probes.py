"""Health probes do what `probe_effect` says, and recovery probes go before clients."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.harness import ADMIN_KEY, HTTP, Cluster, Engine, wait_until
from tests.cluster.load import Load, ask, clients, until

COOLDOWN_S = 2
FAST = {"ttft_ms": 0, "tokens_per_s": 0, "prefill_tokens_per_s": 0, "output_tokens": 5}
STATE = {"lease_s": 1.5, "socket_timeout_ms": 400, "heartbeat_s": 0.2, "replica_ttl_s": 0.6}


def coordinated(
    factory: pytest.TempPathFactory, redis_url: str, name: str, **routing: Any
) -> Cluster:
    """Three replicas and a coordinator over two engines, of which the second is the fallback."""
    cluster = Cluster(
        factory.mktemp(name),
        redis_url,
        engines={"engine-a": FAST, "engine-b": FAST},
        coordinators=1,
    )
    cluster.write(
        "routing.yaml",
        {
            "affinity": {"enabled": False},
            "local_deployment": [{"endpoint": one.url, "models": ["m"]} for one in cluster.engines],
            "circuit": {"failure_threshold": 3, "cooldown_seconds": COOLDOWN_S},
            "retry_budget": {"enabled": False},
            "state": {**STATE, "namespace": name},
            "coordinator": {"lease_s": 2},
            **routing,
        },
    )
    return cluster


def endpoint_health(cluster: Cluster, engine: Engine, path: str = "/routing") -> dict[str, Any]:
    """What the last probe of an engine has found, as operators see it."""
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    answer = HTTP.get(f"{cluster.replicas[-1].url}{path}", headers=headers).raise_for_status()
    found: dict[str, Any] = answer.json()["endpoint_health"].get(engine.url, {})
    return found


def circuit(cluster: Cluster, engine: Engine) -> str:
    """An endpoint's circuit, as operators see it."""
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    answer = HTTP.get(f"{cluster.replicas[-1].url}/health/deep", headers=headers)
    return str(answer.json()["providers"][f"m:{engine.location}"]["circuit_state"])


@pytest.fixture(scope="class")
def reporting(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with coordinated(tmp_path_factory, module_redis, "report", health_check=1) as cluster:
        yield cluster


@pytest.fixture(scope="class")
def moving(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    # A cooldown that outlasts every pause between two probes, however busy the machine is.
    circuits = {"failure_threshold": 3, "cooldown_seconds": 20}
    routing = {"health_check": 1, "probe_effect": "circuit", "circuit": circuits}
    with coordinated(tmp_path_factory, module_redis, "circuit", **routing) as cluster:
        yield cluster


@pytest.fixture(scope="class")
def recovering(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    routing = {"recovery_probes": True}
    with coordinated(tmp_path_factory, module_redis, "recovery", **routing) as cluster:
        yield cluster


def opened_at_ms(cluster: Cluster, engine: Engine) -> int:
    """When an endpoint's circuit has opened last."""
    return int(cluster.redis.hget("circuit:{m:m}:endpoints", f"{engine.location}:opened_at_ms"))


class TestReporting:
    """`probe_effect: report`, which it is unless something else is said."""

    @pytest.fixture
    def cluster(self, reporting: Cluster) -> Cluster:
        return reporting

    async def test_engine_that_is_well_and_fails_requests_is_told_as_well_and_taken_out(
        self, cluster: Cluster
    ) -> None:
        ill = cluster.engines[0]
        ill.fault(status=500)
        async with clients(cluster.replicas) as https:
            load = Load(https, workers_each=1)
            await until(lambda: circuit(cluster, ill) == "open", "an open circuit")
            probes = ill.counters()["health_checks"]
            await until(lambda: ill.counters()["health_checks"] >= probes + 2, "two more probes")
            assert endpoint_health(cluster, ill)["healthy"] is True
            assert circuit(cluster, ill) != "closed"
            await load.stop()
        ill.heal()

    async def test_engine_that_is_ill_and_serves_requests_is_told_as_ill_and_left_in(
        self, cluster: Cluster
    ) -> None:
        ill = cluster.engines[1]
        ill.fault(health_status=503)
        wait_until(lambda: endpoint_health(cluster, ill).get("failures", 0) >= 4, "ill for long")
        for path in ("/routing", "/health/deep"):
            found = endpoint_health(cluster, ill, path)
            assert (found["healthy"], found["status"], found["error"]) == (False, 503, None)
        assert circuit(cluster, ill) == "closed"
        async with clients(cluster.replicas) as https:
            answers = [await ask(http) for http in https * 10]
        assert Counter(answer.endpoint for answer in answers)[f"m:{ill.location}"] > 0
        # And well again it is told so
        ill.heal()
        wait_until(lambda: endpoint_health(cluster, ill)["healthy"], "well again")
        assert endpoint_health(cluster, ill)["failures"] == 0

    def test_engine_that_is_gone_is_told_with_the_reason(self, cluster: Cluster) -> None:
        gone = cluster.engines[1]
        gone.kill()
        wait_until(lambda: not endpoint_health(cluster, gone)["healthy"], "ill")
        found = endpoint_health(cluster, gone)
        assert (found["status"], found["error"]) == (None, "ConnectError")
        gone.start()
        wait_until(lambda: endpoint_health(cluster, gone)["healthy"], "well again")


class TestMovingCircuits:
    """`probe_effect: circuit`."""

    @pytest.fixture
    def cluster(self, moving: Cluster) -> Cluster:
        return moving

    async def test_engine_that_is_ill_gets_no_requests_though_it_would_serve_them(
        self, cluster: Cluster
    ) -> None:
        ill = cluster.engines[0]
        async with clients(cluster.replicas) as https:
            load = Load(https, workers_each=1)
            ill.fault(health_status=503)
            await until(lambda: circuit(cluster, ill) == "open", "an open circuit")
            # Then it stays out, and each further probe begins the cooldown anew
            await asyncio.sleep(0.3)  # those under way when it opened
            seen, opened_ms = ill.counters()["requests"], opened_at_ms(cluster, ill)
            await until(lambda: opened_at_ms(cluster, ill) > opened_ms + 2000, "further probes")
            assert ill.counters()["requests"] == seen
            # And well again it serves at once
            ill.heal()
            await until(lambda: ill.counters()["requests"] > seen + 5, "requests again")
            assert {answer.status for answer in await load.stop()} == {200}
        assert circuit(cluster, ill) == "closed"

    async def test_engine_that_is_well_and_fails_requests_is_put_back_again_and_again(
        self, cluster: Cluster
    ) -> None:
        failing = cluster.engines[1]
        failing.fault(status=500)
        async with clients(cluster.replicas) as https:
            load = Load(https, workers_each=1)
            opened = closed = 0

            def turned() -> bool:
                nonlocal opened, closed
                lines = [
                    line
                    for process in (*cluster.replicas, *cluster.coordinators)
                    for name in ("circuit_opened", "circuit_closed")
                    for line in process.events(name)
                    if line["endpoint"] == f"m:{failing.location}"
                ]
                opened = sum(line["msg"] == "circuit_opened" for line in lines)
                closed = sum(line.get("by") == "health probe" for line in lines)
                return opened >= 3 and closed >= 2

            await until(turned, "opened by requests and closed by probes")
            await load.stop()
        failing.heal()


class TestRecovering:
    @pytest.fixture
    def cluster(self, recovering: Cluster) -> Cluster:
        return recovering

    @pytest.mark.parametrize("how", ["dead", "failing"])
    async def test_engine_is_back_in_service_without_a_client_having_tried_it(
        self, cluster: Cluster, how: str
    ) -> None:
        ill = cluster.engines[0]
        await until(lambda: len(cluster.replicas[0].events("started")) > 0, "a replica")
        async with clients(cluster.replicas) as https:
            load = Load(https, workers_each=2)
            # Given an engine that requests have found out to be ill
            if how == "dead":
                ill.kill()
            else:
                ill.fault(status=500)
            await until(lambda: circuit(cluster, ill) == "open", "an open circuit")
            await asyncio.sleep(0.3)  # those under way when it opened
            begun = len(load.answers)

            # When it stays so for some cooldowns, and is well again
            await asyncio.sleep(3.5 * COOLDOWN_S)
            assert circuit(cluster, ill) != "closed"
            meanwhile = load.answers[begun:]
            if how == "dead":
                ill.start()
            else:
                ill.heal()
            await until(lambda: circuit(cluster, ill) == "closed", "a closed circuit")
            await load.reach(30)
            answers = await load.stop()

        # Then no client has tried it before it was well, and all were served
        assert {answer.attempts for answer in meanwhile} == {1}
        assert {answer.status for answer in answers} == {200}
        later = Counter(answer.endpoint for answer in answers[-30:])
        assert later[f"m:{ill.location}"] > 0
        closing = cluster.coordinators[0].events("circuit_closed")[-1]
        assert (closing["endpoint"], closing["by"]) == (f"m:{ill.location}", "recovery probe")

    async def test_recovery_probe_asks_for_one_token_and_leaves_nothing_behind(
        self, cluster: Cluster
    ) -> None:
        ill = cluster.engines[1]
        async with clients(cluster.replicas[:1]) as (http,):
            ill.fault(status=500, count=3)
            for _ in range(3):
                await ask(http, pin=f"m:{ill.location}", key=ADMIN_KEY)
            assert circuit(cluster, ill) == "open"
            ill.heal(counters=True)
            await until(lambda: circuit(cluster, ill) == "closed", "a closed circuit")
        seen = ill.counters()
        assert seen["requests"] == 1
        assert seen["last"]["body"]["max_tokens"] == 1
        wait_until(lambda: not cluster.redis.keys("recovery:{m:m}:claim*"), "no claim")
        assert not [
            name for name in cluster.redis.hkeys("recovery:{m:m}:endpoints") if "inflight" in name
        ]
