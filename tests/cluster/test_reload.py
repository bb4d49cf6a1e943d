"""A configuration is read anew while requests come: at once, and wholly or not at all."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.cluster.harness import Cluster, Engine, wait_until
from tests.cluster.load import Answer, Load, Streams, ask, clients, idle, reload, until

PER_S = 20
ENGINE = {"ttft_ms": 0, "tokens_per_s": PER_S, "output_tokens": 30 * PER_S}
STATE = {"lease_s": 1.5, "socket_timeout_ms": 500, "heartbeat_s": 0.2, "replica_ttl_s": 2.0}
ALICE, BOB = ({"id": name, "key": f"sk-{name}-of-the-tests"} for name in ("alice", "bob"))
A_MS = 0.001
"""To which the log is exact."""


def model(engine: Engine, **fields: Any) -> dict[str, Any]:
    route = {"kind": "vllm", "base_url": engine.url}
    return {"id": "m", "name": "M", "provider": "vllm", "route": [route], **fields}


def routing(*, names_endpoints: bool) -> dict[str, Any]:
    return {"server": {"endpoint_header": names_endpoints}, "state": STATE}


def write_old(cluster: Cluster) -> None:
    """`m` is on the first engine, and answers name their endpoint; `doomed` is on the second."""
    first, second = cluster.engines
    cluster.write("models.yaml", {"models": [model(first), model(second, id="doomed")]})
    cluster.write("routing.yaml", routing(names_endpoints=True))
    cluster.write("keys.yaml", {"keys": [ALICE, BOB]})


def write_new(cluster: Cluster) -> None:
    """`m` is on the second engine, and answers do not name it."""
    first, second = cluster.engines
    cluster.write("models.yaml", {"models": [model(second), model(first, id="doomed")]})
    cluster.write("routing.yaml", routing(names_endpoints=False))
    cluster.write("keys.yaml", {"keys": [ALICE, BOB]})


def side(answer: Answer, cluster: Cluster) -> str:
    """The configuration that an answer is of, as far as all of it says the same."""
    first, second = cluster.engines
    sides = {
        (first.name, f"m:{first.location}"): "old",
        (second.name, None): "new",
    }
    return sides.get((str(answer.engine), answer.endpoint), "mixed")


@pytest.fixture(scope="module")
def reloading(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("reload"),
        module_redis,
        engines={"engine-a": ENGINE, "engine-b": ENGINE},
        models=lambda engines: [model(engines[0]), model(engines[1], id="doomed")],
        routing=routing(names_endpoints=True),
        keys=[ALICE, BOB],
    ) as cluster:
        yield cluster


@pytest.fixture
async def cluster(reloading: Cluster) -> Cluster:
    """All replicas on the old configuration, whatever the last test has left."""
    write_old(reloading)
    for replica in reloading.replicas:
        if not replica.is_running:
            replica.start()
        await until(replica.is_ready, "ready")
    await reload(reloading.replicas)
    reloading.reset()
    return reloading


def moment(line: dict[str, Any]) -> float:
    """When a line was logged, by the clock on the wall."""
    return datetime.fromisoformat(line["ts"]).timestamp()


def begun_and_ended(answers: list[Answer], since: float, until: float) -> list[Answer]:
    """Those that were asked for after one moment and complete before another."""
    return [a for a in answers if since + A_MS < a.began_s and a.began_s + a.took_s < until]


def loads_of(https: list[httpx.AsyncClient], key: str) -> list[tuple[Load, Load]]:
    """For each client, whole answers and streams without pause."""
    return [
        (
            Load([http], workers_each=2, key=key, max_tokens=1),
            Load([http], workers_each=2, key=key, max_tokens=1, stream=True),
        )
        for http in https
    ]


async def reach(loads: list[tuple[Load, Load]], count: int) -> None:
    """Wait until each has had so many more answers."""
    await asyncio.gather(*(load.reach(count) for pair in loads for load in pair))


async def stop(loads: list[tuple[Load, Load]]) -> list[list[Answer]]:
    """The answers of each client."""
    return [[*await whole.stop(), *await streams.stop()] for whole, streams in loads]


async def test_under_load_each_answer_is_wholly_of_the_old_or_wholly_of_the_new_files(
    cluster: Cluster,
) -> None:
    # Given whole answers and streams without pause, through each replica
    turns: list[list[tuple[str, float]]] = [[("old", 0.0)] for _ in cluster.replicas]
    digests = [replica.config_digest() for replica in cluster.replicas[:1]]
    async with clients(cluster.replicas) as https:
        loads = loads_of(https, ALICE["key"])
        # When the route and a setting change, and change back, twice
        for now, write in (("new", write_new), ("old", write_old)) * 2:
            await reach(loads, 20)
            write(cluster)
            for of_replica, line in zip(turns, await reload(cluster.replicas), strict=True):
                assert (line["msg"], line["needs_restart"]) == ("config_reloaded", [])
                of_replica.append((now, moment(line)))
            digests += {replica.config_digest() for replica in cluster.replicas}
        await reach(loads, 20)
        answers = await stop(loads)

    # Then no client has seen an error, and no answer is of both
    for of_replica, its_turns in zip(answers, turns, strict=True):
        assert {(a.status, a.is_whole) for a in of_replica} == {(200, True)}
        assert {side(a, cluster) for a in of_replica} == {"old", "new"}
        # And once a replica says that it has turned, nothing is served by what was before
        ends = [since for _, since in its_turns[1:]] + [math.inf]
        for (now, since), end in zip(its_turns, ends, strict=True):
            between = begun_and_ended(of_replica, since, end)
            assert {side(a, cluster) for a in between} == {now}
    # And all agree on a digest, which tells the files apart, here and in Redis
    old, new = digests[:2]
    assert old != new
    assert digests == [old, new, old, new, old]
    wait_until(lambda: told(cluster) == {old}, "all tell of the digest")


def told(cluster: Cluster) -> set[str]:
    """The digests that living replicas have told the cluster."""
    about = cluster.redis.hmget("gw:{cluster}:replicas", sorted(cluster.live_replicas()))
    return {str(text).partition("config=")[2].partition(" ")[0] for text in about}


@pytest.mark.parametrize(
    ("file", "text", "path", "message"),
    [
        ("models.yaml", "models: [{id: m, name: M, provider: vllm, wieght: 1}]", "models[0]", "we"),
        ("models.yaml", "models: [", "", "line 1"),
        ("routing.yaml", "circuit: {failure_threshold: 0}", "circuit.failure_threshold", "1"),
        ("keys.yaml", "keys: [{id: alice}]", "keys[0]", "neither key nor key_sha256"),
    ],
)
async def test_a_broken_file_changes_nothing_and_the_log_says_what_is_wrong_with_it(
    cluster: Cluster, file: str, text: str, path: str, message: str
) -> None:
    served = cluster.replicas[0].config_digest()
    async with clients(cluster.replicas) as https:
        # Given load
        loads = loads_of(https, ALICE["key"])
        await reach(loads, 5)

        # When all files are new, and one of them is broken
        write_new(cluster)
        (cluster.config / file).write_text(text, "utf-8")
        lines = await reload(cluster.replicas)
        await reach(loads, 5)

        # Then each replica says so, and all goes on under the old ones
        for line in lines:
            assert (line["msg"], line["level"]) == ("config_reload_failed", "error")
            problem = line["problems"][0]
            assert file in problem
            assert path in problem
            assert message in problem
        assert {replica.config_digest() for replica in cluster.replicas} == {served}

        # When it is mended
        write_new(cluster)
        mended = await reload(cluster.replicas)
        await reach(loads, 5)
        answers = await stop(loads)

    # Then the new ones are served, and no client has noticed more than that
    for of_replica, line in zip(answers, mended, strict=True):
        assert line["msg"] == "config_reloaded"
        assert {a.status for a in of_replica} == {200}
        before = begun_and_ended(of_replica, 0.0, moment(line))
        after = begun_and_ended(of_replica, moment(line), math.inf)
        assert {side(a, cluster) for a in before} == {"old"}
        assert {side(a, cluster) for a in after} == {"new"}


async def test_a_revoked_key_is_refused_and_what_it_has_asked_for_before_comes_to_its_end(
    cluster: Cluster,
) -> None:
    async with clients(cluster.replicas) as https:
        # Given a stream of each of two callers, through each replica
        streams = [
            Streams(http, 1, key=key, max_tokens=PER_S * 2)
            for http in https
            for key in (ALICE["key"], BOB["key"])
        ]
        for each in streams:
            await until(each.all_flow, "first tokens")

        # When the key of one is taken away
        cluster.write("keys.yaml", {"keys": [BOB]})
        await reload(cluster.replicas)

        # Then it is refused everywhere, and the other is not
        for http in https:
            refused = await ask(http, key=ALICE["key"], max_tokens=1)
            assert (refused.status, refused.code) == (401, "invalid_api_key")
            assert (await ask(http, key=BOB["key"], max_tokens=1)).status == 200
        for each in streams:
            assert all(answer.is_whole for answer in await each.ended())
    await idle(cluster)


async def test_a_removed_model_is_unknown_and_its_open_streams_run_to_their_end(
    cluster: Cluster,
) -> None:
    key = ALICE["key"]
    async with clients(cluster.replicas) as https:
        # Given streams of a model that outlast two leases
        tokens = int(2.5 * STATE["lease_s"] * PER_S)
        streams = [Streams(http, 3, model="doomed", key=key, max_tokens=tokens) for http in https]
        for each in streams:
            await until(each.all_flow, "first tokens")

        # When the model is removed
        cluster.write("models.yaml", {"models": [model(cluster.engines[0])]})
        await reload(cluster.replicas)

        # Then it is unknown
        for http in https:
            gone = await ask(http, model="doomed", key=key, max_tokens=1)
            assert (gone.status, gone.code) == (404, "model_not_found")
        # And its streams are whole, and are counted until they have ended
        assert sum(cluster.inflight("doomed").values()) == 9
        for each in streams:
            for answer in await each.ended():
                assert (answer.is_whole, answer.tokens) == (True, tokens)
    await until(lambda: cluster.is_idle("doomed"), "an idle model")
    assert cluster.reaped("doomed") == 0


async def test_what_a_killed_replica_held_of_a_removed_model_is_given_back(
    cluster: Cluster,
) -> None:
    dying = cluster.replicas[0]
    async with clients(cluster.replicas) as https:
        # Given streams of a model that has been removed since
        streams = Streams(https[0], 3, model="doomed", key=BOB["key"])
        await until(streams.all_flow, "first tokens")
        cluster.write("models.yaml", {"models": [model(cluster.engines[0])]})
        await reload(cluster.replicas)

        # When their replica is killed, then the others undo its claims
        dying.kill()
        await until(lambda: cluster.is_idle("doomed"), "an idle model")
        assert cluster.reaped("doomed") == 3
        await streams.ended()
