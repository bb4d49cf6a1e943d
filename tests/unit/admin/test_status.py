"""The status is what Redis holds, and says what an operator ought to look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.admin.gates import GateReader
from gateway.admin.status import Status, StatusReader
from gateway.admission.secret import Secret
from gateway.config.limit_schema import LimitSettings, RetryBudget
from gateway.config.result import Config
from gateway.config.schema import Deployment
from gateway.core.limits import EndpointLimits, Limit
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.look import Server
from gateway.state.pool_store import PoolStore
from gateway.state.standing import Retries
from tests.fakes.builders import config, model, route
from tests.unit.admin.conftest import Embedded

WELL = {
    "redis_version": "7.0.15",
    "maxmemory_policy": "noeviction",
    "maxmemory": "0",
    "used_memory": "1000",
    "aof_enabled": "1",
    "rdb_last_bgsave_status": "ok",
    "aof_last_write_status": "ok",
}


class Telling:
    """A server that says of itself what it is told to."""

    def __init__(self, said: Mapping[str, str]) -> None:
        self.said = said

    async def info(self) -> Mapping[str, str]:
        return self.said

    async def ask(self, *command: str | int) -> None:
        return None

    def script_of(self, digest: str) -> None:
        return None


async def read(store: Embedded, of: Config | None = None, **said: str) -> Status:
    of = of or config()
    return await reader(store, of, Telling({**WELL, **said})).read()


def reader(store: Embedded, of: Config, server: Server) -> StatusReader:
    pools = PoolStore(store.runner, store.keys)
    secret = Secret("of the tests")
    return StatusReader(of, store, server, gates(store, of), pool_store=pools, secret=secret)


def gates(store: Embedded, of: Config) -> GateReader:
    gate_store = GateStore(store.runner, store.keys, Channels(store.keys))
    return GateReader(of, gate_store, PoolStore(store.runner, store.keys), Secret("of the tests"))


async def beat(store: Embedded, replica: str, digest: str = "digest", mark: str = "") -> None:
    about = f"host=host-%C3%A4 version=1.2.3 config={digest} secret={mark}"
    await store.beat_replica(replica, about=about, ttl_ms=6000)


async def test_endpoints_are_shown_as_all_replicas_see_them(store: Embedded) -> None:
    # Given two models, one endpoint of which has failed and one of which is out of service
    of = config(model(route("a"), route("b")), model(route("c", model_id="n"), id="n"))
    await store.edit("m", a__circuit="open", a__availability="0.5", a__last_status="503")
    await store.edit("m", a__failures="3", a__conn="r9:2:5", a__inflight="4", b__inflight="junk")
    await store.redis("ZADD", store.keys.model("m")["claims"], "1", "r1.1", "2", "r1.2")
    await store.override_weight(
        "m", location="b", weight=0.0, routes=[("a", "a", 1.0), ("b", "b", 1.0)]
    )
    # When the status is read
    status = await read(store, of)
    # Then each endpoint stands there by its id
    assert list(status.endpoints) == ["m:a", "m:b", "n:c"]
    a, b, c = status.endpoints.values()
    assert (a.model, a.location, a.provider) == ("m", "a", "a")
    assert (a.circuit, a.availability, a.failures, a.last_status) == ("open", 0.5, 3, 503)
    assert (a.inflight, a.unreachable_from) == (4, {"r9": 2})
    assert (b.inflight, b.weight, b.reasons) == (0, 0.0, ["weight_override"])
    assert (c.circuit, c.weight, c.reasons) == ("closed", 1.0, [])
    assert status.claims == {"m": 2, "n": 0}
    assert [gate.provider for gate in status.gates] == ["a", "b", "c"]
    assert status.coordinator is None


async def test_pauses_and_limits_are_shown_with_what_is_left_of_them(store: Embedded) -> None:
    # Given an endpoint that pauses, and has served two of three requests, the other 20 s ago
    limits = EndpointLimits(rpm=Limit(3), otpm=Limit(50, is_shadow=True))
    places = EndpointLimits(max_parallel_requests=Limit(4))
    of = config(model(route("a", limits=limits), route("b", limits=places), route("c")))
    now_ms = int((await store.redis("TIME"))[0]) * 1000
    part = now_ms // 2000
    await store.edit("m", a__cooldown=f"until_ms={now_ms + 9_000} length_ms=9000 reason=429")
    await store.edit("m", a__rpm=f"sliding 60000 {part - 10} 2 1 1", a__would_refuse_otpm="6")
    over = f"until_ms={now_ms - 1} length_ms=9000 reason=429"
    await store.edit("m", b__inflight="3", b__cooldown=over)
    # When the status is read
    status = await read(store, of)
    # Then it says how that stands by now
    a, b, c = status.endpoints.values()
    assert a.cooldown is not None
    assert a.cooldown.reason == "429"
    assert 0 < a.cooldown.left_s <= 9
    rpm, otpm = a.limits
    assert (rpm.limit, rpm.mode, rpm.most, rpm.taken, rpm.left) == ("rpm", "enforce", 3, 2, 1)
    assert 30 < (rpm.reset_s or 0) <= 42
    assert (otpm.limit, otpm.mode, otpm.taken, otpm.reset_s) == ("otpm", "shadow", 0, None)
    assert (rpm.would_have_refused, otpm.would_have_refused) == (0, 6)
    assert b.cooldown is None
    assert [(one.limit, one.most, one.taken, one.left) for one in b.limits] == [
        ("max_parallel_requests", 4, 3, 1)
    ]
    assert (c.cooldown, c.limits) == (None, [])


async def test_limits_are_counted_in_the_window_that_is_configured(store: Embedded) -> None:
    of = config(
        model(route("a", limits=EndpointLimits(rpm=Limit(3)))),
        limits=LimitSettings(window_seconds=30),
    )
    part = int((await store.redis("TIME"))[0])
    await store.edit("m", a__rpm=f"sliding 30000 {part} 2 2")
    assert [one.taken for one in (await read(store, of)).endpoints["m:a"].limits] == [2]
    await store.edit("m", a__rpm=f"sliding 60000 {part // 2} 2 2")
    assert [one.taken for one in (await read(store, of)).endpoints["m:a"].limits] == [0]


async def test_retry_budgets_are_shown_of_models_that_can_fail_over(store: Embedded) -> None:
    pair = (route("a"), route("b"))
    of = config(model(*pair), model(route("c", model_id="n"), id="n"))
    half = int((await store.redis("TIME"))[0]) // 30
    for id in ("m", "n"):
        await store.edit(id, retries=f"{half} 40 3 0 0")
    told = (await read(store, of)).retry_budgets
    assert told == {"m": Retries(first_attempts=40, others=3, allowed=8)}
    off = config(model(*pair), retry_budget=RetryBudget(enabled=False))
    assert (await read(store, off)).retry_budgets == {}


async def test_what_has_gone_wrong_with_a_models_decisions_is_told(store: Embedded) -> None:
    await beat(store, "r1")
    await store.edit("m", prefill_faults="12", clock_steps="junk", at_ms="5")
    assert (await read(store)).warnings == [
        "model m: 12 draws could not look at prefill (prefill_faults)"
    ]
    await store.edit("m", prefill_faults="0", clock_steps="2")
    assert (await read(store)).warnings == [
        "model m: Redis's clock fell back 2 times (clock_steps)"
    ]


LEADER = "host=host-%C3%A4 version=1.2.3 config=digest"


async def lead(store: Embedded, lease_ms: int = 60_000, about: str = LEADER) -> int:
    """Have a coordinator lead; returns its epoch."""
    coordinator = CoordinatorStore(store.runner, store.keys)
    return (await coordinator.lease("c1", epoch=0, lease_ms=lease_ms, about=about)).epoch


async def test_coordinator_is_told_with_what_it_has_published(store: Embedded) -> None:
    await beat(store, "r1")
    epoch = await lead(store)
    publisher = CoordinatorStore(store.runner, store.keys)
    for name in ("tick", "probe:http://a", "probe:http://b"):
        await publisher.publish(epoch, name, "healthy=1")

    status = await read(store)

    assert status.coordinator is not None
    one = status.coordinator
    assert (one.holder, one.epoch, one.host, one.version) == ("c1", epoch, "host-ä", "1.2.3")
    assert 0 < one.left_ms <= 60_000
    assert one.published.keys() == {"tick", "probes"}
    assert status.warnings == []


async def test_lease_that_has_run_out_is_told(store: Embedded) -> None:
    await beat(store, "r1")
    await lead(store)
    await store.redis("HSET", store.keys.cluster()["lease"], "until_ms", "5")
    status = await read(store)
    assert status.coordinator is not None
    assert status.coordinator.left_ms == 0
    assert status.warnings == ["no coordinator: c1, the last one, has ended or fallen silent"]


async def test_coordinator_with_another_configuration_is_told(store: Embedded) -> None:
    await beat(store, "r1")
    await lead(store, about="host=h version=1 config=other")
    (warning,) = (await read(store)).warnings
    assert "the coordinator's configuration, other, is not the one read here" in warning


@pytest.mark.parametrize(
    ("of", "is_missed"),
    [
        (config(), False),
        (config(health_check=5), False),
        (config(health_check=5, local_deployment=(Deployment(endpoint="x", models=("m",)),)), True),
        (config(model(route("a", recovery_probes=True))), True),
    ],
    ids=["nothing asked for", "nothing to be probed", "health probes", "recovery probes"],
)
async def test_coordinator_that_has_never_run_is_missed_where_it_is_asked_for_something(
    store: Embedded, of: Config, is_missed: bool
) -> None:
    await beat(store, "r1")
    warnings = (await read(store, of)).warnings
    assert warnings == ["no coordinator has run yet, and the configuration asks for probes"] * (
        is_missed
    )


async def test_replicas_that_agree_are_listed_without_a_warning(store: Embedded) -> None:
    await beat(store, "r2")
    await beat(store, "r1")
    status = await read(store)
    assert [one.id for one in status.replicas] == ["r1", "r2"]
    one = status.replicas[0]
    assert (one.host, one.version, one.config_digest) == ("host-ä", "1.2.3", "digest")
    assert one.silent_ms < 6000
    assert status.warnings == []


async def test_replicas_with_other_configurations_are_named(store: Embedded) -> None:
    for replica, digest in (("r1", "new"), ("r2", "old"), ("r3", "new")):
        await beat(store, replica, digest)
    status = await read(store)
    assert status.warnings == ["configurations differ: new on r1, r3; old on r2"]


async def test_replicas_with_other_secrets_are_named(store: Embedded) -> None:
    # Given replicas, one of which does not tell, as before it knows the salt
    for replica, mark in (("r1", "0a0a"), ("r2", "ffff"), ("r3", "0a0a"), ("r4", "")):
        await beat(store, replica, mark=mark)
    status = await read(store)
    assert [one.secret_mark for one in status.replicas] == ["0a0a", "ffff", "0a0a", ""]
    [warning] = status.warnings
    assert "CONCORD_SECRET differs (0a0a on r1, r3; ffff on r2)" in warning


async def test_replicas_with_one_secret_are_not_warned_of(store: Embedded) -> None:
    for replica, mark in (("r1", "0a0a"), ("r2", "0a0a"), ("r3", "")):
        await beat(store, replica, mark=mark)
    assert (await read(store)).warnings == []


async def test_configuration_of_a_command_is_compared_with_that_of_the_replicas(
    store: Embedded,
) -> None:
    await beat(store, "r1", "other")
    status = await read(store)
    (warning,) = status.warnings
    assert "read here, digest, is not the replicas', other" in warning


async def test_replica_that_fell_silent_is_no_longer_listed_but_named(store: Embedded) -> None:
    await beat(store, "r1")
    key = store.keys.cluster()["replicas"]
    now_ms = int((await store.redis("TIME"))[0]) * 1000
    await store.redis("HSET", key, "r2", f"seen_ms={now_ms - 9000} host=h version=1 config=digest")
    status = await read(store)
    assert [one.id for one in status.replicas] == ["r1"]
    assert status.warnings == ["replica r2 on h has fallen silent"]


async def test_cluster_without_a_replica_says_so(store: Embedded) -> None:
    assert (await read(store)).warnings == ["no replica has said lately that it lives"]


@pytest.mark.parametrize(
    ("said", "warning"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
        ({"redis_version": "6.0.20"}, "Redis 6.0.20 is older than 6.2"),
        ({"redis_version": "5.0"}, "Redis 5.0 is older than 6.2"),
        ({"maxmemory": "1100"}, "more than 90% of its maxmemory"),
        ({"rdb_last_bgsave_status": "err"}, "the last snapshot of Redis failed"),
        ({"aof_last_write_status": "err"}, "the last AOF of Redis failed"),
    ],
)
async def test_what_is_wrong_with_the_store_is_said(
    store: Embedded, said: dict[str, str], warning: str
) -> None:
    await beat(store, "r1")
    (told,) = (await read(store, **said)).warnings
    assert warning in told


@pytest.mark.parametrize(
    "said", [{"redis_version": "6.2.0"}, {"redis_version": "10.0.1"}, {"maxmemory": "1200"}]
)
async def test_store_at_the_border_is_well(store: Embedded, said: dict[str, str]) -> None:
    await beat(store, "r1")
    assert (await read(store, **said)).warnings == []


async def test_store_tells_its_version_policy_persistence_and_memory(store: Embedded) -> None:
    redis = (await read(store, maxmemory="5000", aof_enabled="0")).redis
    assert (redis.version, redis.policy, redis.persistence) == ("7.0.15", "noeviction", "no aof")
    assert (redis.memory_bytes, redis.max_memory_bytes) == (1000, 5000)


async def test_store_that_tells_nothing_of_itself_is_unknown_and_no_warning(
    store: Embedded,
) -> None:
    await beat(store, "r1")
    status = await reader(store, config(), store.runner).read()
    unknown: Any = (None, None, None, None, None)
    redis = status.redis
    assert unknown == (
        redis.version,
        redis.policy,
        redis.persistence,
        redis.memory_bytes,
        redis.max_memory_bytes,
    )
    assert status.warnings == []
