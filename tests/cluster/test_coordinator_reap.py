"""What no replica tidies up, the coordinator does: a model that nobody serves any more."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from tests.cluster.conftest import PER_S
from tests.cluster.harness import Cluster, Engine, wait_until
from tests.cluster.load import Streams, clients, until

LEASE_S = 3.0
PACED = {"ttft_ms": 0, "tokens_per_s": PER_S, "output_tokens": 60 * PER_S, "host": "0.0.0.0"}
AT_A_TIME = 30
"""Requests of one account."""


def serving(*models: str) -> Any:
    """Models that are all served by every engine, each through an account of its own."""

    def described(engines: list[Engine]) -> list[dict[str, Any]]:
        # By an address that is not taken for this host's, whose engines have no gate.
        urls = [f"http://127.0.0.2:{engine.port}" for engine in engines]
        routes = [{"kind": "vllm", "base_url": url, "location": url[-4:]} for url in urls]
        return [{"id": id, "name": id, "provider": id, "route": routes} for id in models]

    return described


def keys_of(cluster: Cluster, model: str) -> list[str]:
    """Those of the model, and of the gate in front of its account."""
    return [*cluster.redis.keys(f"gw:{{m:{model}}}:*"), *gate_keys(cluster, model)]


def gate_keys(cluster: Cluster, model: str, kind: str = "*") -> list[str]:
    found: list[str] = cluster.redis.keys(f"gw:{{u:{model}:*}}:{kind}")
    return found


def at_gate(cluster: Cluster, model: str) -> list[str]:
    """Keys that somebody in the gate or in front of it has."""
    return [
        key
        for kind in ("holders", "line", "aside")
        for key in gate_keys(cluster, model, f"gate_{kind}")
    ]


def in_line(cluster: Cluster, model: str) -> int:
    return sum(cluster.redis.zcard(key) for key in gate_keys(cluster, model, "gate_line"))


async def test_model_that_is_removed_with_claims_and_waiters_leaves_nothing_behind(
    tmp_path: Path, private_redis: str
) -> None:
    state = {"lease_s": LEASE_S, "socket_timeout_ms": 400, "heartbeat_s": 0.2, "replica_ttl_s": 0.6}
    with Cluster(
        tmp_path,
        private_redis,
        engines={"engine-a": PACED, "engine-b": PACED},
        models=serving("m", "doomed"),
        routing={
            "state": state,
            "coordinator": {"lease_s": 2},
            "upstream_concurrency": {"initial": AT_A_TIME, "max": AT_A_TIME},
        },
        coordinators=1,
    ) as cluster:
        (coordinator,) = cluster.coordinators
        wait_until(coordinator.leads, "a leader")
        async with clients(cluster.replicas) as https:
            # Given fifty open claims on a model, twenty of them of requests in line
            doomed = [
                Streams(http, n, model="doomed")
                for http, n in zip(https, (17, 17, 16), strict=True)
            ]
            await until(lambda: len(cluster.claims("doomed")) == 50, "fifty claims")
            await until(lambda: in_line(cluster, "doomed") == 50 - AT_A_TIME, "twenty in line")

            # When it is taken out of the configuration, and all replicas die
            cluster.write("models.yaml", {"models": serving("m")(cluster.engines)})
            coordinator.signal(signal.SIGHUP)
            await until(lambda: coordinator.events("config_reloaded"), "another configuration")
            for replica in cluster.replicas:
                replica.kill()
            died_s = time.monotonic()
            for streams in doomed:
                await streams.ended()

            # Then its claims are ended after a lease, and by one and a half, though nobody serves
            await until(lambda: not cluster.claims("doomed"), "no claim")
            assert time.monotonic() - died_s < 1.5 * LEASE_S + 1  # and one for a busy machine
            assert cluster.is_idle("doomed")
            # And its gate has nobody in it or in front of it
            await until(lambda: not at_gate(cluster, "doomed"), "nobody there")

        # When the replicas serve by the new configuration, too
        for replica in cluster.replicas:
            replica.start()

        # Then nothing at all is left
        wait_until(lambda: not keys_of(cluster, "doomed"), "no key of the model or its gate")
        assert coordinator.events("model_reaped")[-1]["model"] == "doomed"
