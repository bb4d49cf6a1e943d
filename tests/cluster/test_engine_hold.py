"""The engine hold: one line in front of an engine, whatever models and replicas lead to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster.harness import ADMIN_KEY, Cluster, Engine
from tests.cluster.load import Answer, Streams, ask, clients, until

LONG_S, SHORT_S, ACQUIRE_S = 60, 0.3, 0.3
SLOW = {"ttft_ms": 0, "tokens_per_s": 5, "output_tokens": 500}
FAST = {"ttft_ms": 0, "tokens_per_s": 0, "output_tokens": 3}


def described(engines: list[Engine]) -> list[dict[str, Any]]:
    """Three models in front of the first engine, which the second relieves."""
    first, second = (
        {"kind": "vllm", "base_url": engine.url, "location": location}
        for engine, location in zip(engines, ("held", "spare"), strict=True)
    )
    waits = {"one": LONG_S, "other": LONG_S, "hasty": SHORT_S}
    return [
        {
            "id": id,
            "name": id,
            "provider": "vllm",
            "route": [first, second],
            "offload": {"route_id": "spare", "wait_seconds": wait_s, "engine_queue_limit": 1},
        }
        for id, wait_s in waits.items()
    ]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("hold"),
        module_redis,
        engines={"held": SLOW, "spare": FAST},
        models=described,
        # What is asked of upstream accounts does not matter to engines.
        routing={
            "upstream_concurrency": {"enabled": False, "acquire_timeout": ACQUIRE_S},
            "state": {"socket_timeout_ms": 1000},
        },
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.reset()
    return shared


def gate(cluster: Cluster) -> dict[str, Any]:
    """The gate of the first engine, as operators see it."""
    answer = httpx.get(
        f"{cluster.replicas[0].url}/admin/status", headers={"x-api-key": ADMIN_KEY}, timeout=10
    )
    gates = answer.raise_for_status().json()["gates"]
    port = cluster.engines[0].port
    return next(dict(one) for one in gates if one["engine"] == f"127.0.0.1:{port}")


async def test_streams_of_two_models_wait_for_the_first_token_of_each_other(
    cluster: Cluster,
) -> None:
    engine = cluster.engines[0]
    async with clients(cluster.replicas) as [first, second, third]:
        # Given an engine that a stream of one model has not got a token from
        engine.fault(silent=True, count=1)
        silent = Streams(first, 1, model="one")
        await until(lambda: engine.counters()["active"] == 1, "the first stream at the engine")
        # When two of another model come through other replicas
        waiting = [Streams(http, 1, model="other") for http in (second, third)]
        await until(lambda: gate(cluster)["waiting"] == 2, "both in line")
        # Then neither is at the engine, nor a load to it; their claims stand
        assert engine.counters()["requests"] == 1
        assert (gate(cluster)["limit"], gate(cluster)["in_flight"]) == (1, 1)
        assert len(cluster.claims("other")) == 2
        assert not [name for name in cluster.row("other") if name.endswith(":prefill_tokens")]
        # When the first leaves, then the next goes, and on its first token the one after it,
        # while its stream is still open
        await silent.hang_up()
        for streams in waiting:
            await until(streams.all_flow, "output")
        assert engine.counters()["active"] == 2
        assert (gate(cluster)["in_flight"], gate(cluster)["waiting"]) == (0, 0)
        for streams in waiting:
            await streams.hang_up()
    await until(lambda: cluster.is_idle("other"), "an idle model")


async def test_a_deadline_takes_a_stream_out_of_the_line_to_the_offload_route(
    cluster: Cluster,
) -> None:
    held, spare = cluster.engines
    async with clients(cluster.replicas) as [first, second, _]:
        held.fault(silent=True)
        silent = Streams(first, 1, model="hasty", pin="hasty:held", key=ADMIN_KEY)
        await until(lambda: held.counters()["active"] == 1, "a stream at the engine")
        answer = await ask(second, model="hasty", stream=True)
        assert (answer.is_whole, answer.endpoint) == (True, "hasty:spare")
        # The pinned one has no deadline and holds its place; the other was not sent there.
        assert (held.counters()["requests"], spare.counters()["requests"]) == (1, 1)
        assert (gate(cluster)["in_flight"], gate(cluster)["waiting"]) == (1, 0)
        await silent.hang_up()
    await until(lambda: gate(cluster)["in_flight"] == 0, "a free place")


async def test_a_stream_without_a_deadline_goes_over_the_limit_in_the_end(cluster: Cluster) -> None:
    held = cluster.engines[0]
    async with clients(cluster.replicas) as [first, second, _]:
        held.fault(silent=True, count=1)
        pinned = {"model": "one", "pin": "one:held", "key": ADMIN_KEY}
        silent = Streams(first, 1, **pinned)
        await until(lambda: held.counters()["active"] == 1, "a stream at the engine")
        second_stream = Streams(second, 1, **pinned)
        await until(second_stream.all_flow, "output")
        [line] = cluster.replicas[1].events("engine_hold_overflowed")
        assert line["engine"].startswith("127.0.0.1:")
        for streams in (silent, second_stream):
            await streams.hang_up()
    await until(lambda: cluster.is_idle("one"), "an idle model")


async def test_a_request_that_streams_nothing_is_never_held(cluster: Cluster) -> None:
    held = cluster.engines[0]
    async with clients(cluster.replicas) as [first, second, _]:
        held.fault(silent=True, count=1)
        silent = Streams(first, 1, model="one")
        await until(lambda: held.counters()["active"] == 1, "a stream at the engine")
        answer: Answer = await ask(second, model="one", max_tokens=1)
        assert (answer.status, answer.endpoint) == (200, "one:held")
        await silent.hang_up()
