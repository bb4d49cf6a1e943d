"""What a replica makes of changed files, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.state.server import PrivateRedis
from tests.cluster.harness import ADMIN_KEY, HTTP, PATIENT, Cluster, Replica
from tests.cluster.load import Streams, ask, clients, reload, until

LEASE_S = 15.0
ALICE, BOB = ({"id": name, "key": f"sk-{name}-of-the-tests"} for name in ("alice", "bob"))
KEY = BOB["key"]
SHORT = {"max_tokens": 1}


def write(
    cluster: Cluster, *, keys: tuple[dict[str, str], ...] = (ALICE, BOB), **other: Any
) -> None:
    """Write the usual files: `m` on the first engine, `other` on the second."""
    first, second = (
        {"name": "M", "provider": "vllm", "route": [{"kind": "vllm", "base_url": engine.url}]}
        for engine in cluster.engines
    )
    models = [{"id": "m", **first}, {"id": "other", **second, **other}]
    cluster.write("models.yaml", {"models": models})
    cluster.write("routing.yaml", {"affinity": {"enabled": False}})
    cluster.write("keys.yaml", {"keys": list(keys)})


@pytest.fixture(scope="module")
def reloading(tmp_path_factory: pytest.TempPathFactory, redis_binary: Path) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("reload")
    with PrivateRedis(redis_binary) as redis, Cluster(folder, redis.url, replicas=1) as cluster:
        yield cluster


@pytest.fixture
async def cluster(reloading: Cluster) -> Cluster:
    """One replica on the usual files."""
    write(reloading)
    await reload(reloading.replicas)
    reloading.reset()
    return reloading


@pytest.fixture
def other(cluster: Cluster, tmp_path: Path) -> Iterator[Replica]:
    """A second replica, not started, on an address that counts as public.

    For it is not spelt like loopback, though it is that, and nobody else's.
    """
    replica = Replica("other", tmp_path, cluster.config, cluster.redis_url, host="127.1")
    yield replica
    replica.kill()


async def test_what_is_left_out_of_the_configuration_is_named(cluster: Cluster) -> None:
    # When a model needs a variable that is not set
    write(cluster, api_key="${NO_SUCH_VARIABLE}")
    (line,) = await reload(cluster.replicas)
    # Then the others are served, and the log says what is missing
    assert line["msg"] == "config_reloaded"
    (warning,) = [text for text in line["warnings"] if "NO_SUCH_VARIABLE" in text]
    assert "models.yaml" in warning
    async with clients(cluster.replicas) as (http,):
        assert (await ask(http, key=KEY, **SHORT)).status == 200
        assert (await ask(http, key=KEY, model="other", **SHORT)).status == 404


async def test_a_key_whose_secret_has_changed_is_a_change_though_no_digest_tells_of_it(
    cluster: Cluster,
) -> None:
    (replica,) = cluster.replicas
    digest, admin = replica.config_digest(), {"authorization": f"Bearer {ADMIN_KEY}"}
    # When a caller is given another secret
    changed = {**ALICE, "key": "sk-another-of-the-tests"}
    write(cluster, keys=(changed, BOB))
    answers = [HTTP.post(f"{replica.url}/admin/reload", headers=admin).json() for _ in range(2)]
    # Then the operator is told of a change, once, and that nothing secret has got into the digest
    assert [answer["changed"] for answer in answers] == [True, False]
    assert {answer["config_digest"] for answer in answers} == {digest}
    # And the old secret is refused
    async with clients(cluster.replicas) as (http,):
        assert (await ask(http, key=ALICE["key"], **SHORT)).status == 401
        assert (await ask(http, key=changed["key"], **SHORT)).status == 200


async def test_settings_of_the_state_wait_for_a_restart_and_the_others_are_served(
    cluster: Cluster, other: Replica
) -> None:
    # When the lease and the namespace change, and a setting of another kind
    state = {**PATIENT, "lease_s": 60, "namespace": "elsewhere"}
    cluster.write("routing.yaml", {"state": state, "server": {"endpoint_header": False}})
    lines = [line for _ in range(2) for line in await reload(cluster.replicas)]

    # Then it is named what waits, also the next time, and it is not in force
    assert [line["msg"] for line in lines] == ["config_reloaded"] * 2
    assert [line["needs_restart"] for line in lines] == [["state.lease_s", "state.namespace"]] * 2
    async with clients(cluster.replicas) as (http,):
        assert (await ask(http, key=KEY, **SHORT)).endpoint is None
        cluster.engines[0].fault(silent=True)
        streams = Streams(http, 1, key=KEY)
        await until(cluster.claims, "a claim")
        (held,) = cluster.redis.hvals("gw:{m:m}:claimed")
        assert f"lease_ms={LEASE_S * 1000:.0f}" in held.split()
        assert not cluster.redis.keys("elsewhere:*")
        await streams.hang_up()

    # When a replica starts with it, then it is
    other.start()
    await until(other.is_ready, "ready")
    await until(lambda: cluster.redis.keys("elsewhere:*"), "keys of the new namespace")


async def test_nonsense_in_place_of_overrides_keeps_nobody_from_starting_or_reloading(
    cluster: Cluster, other: Replica
) -> None:
    # Given keys that somebody has made something else of
    for model, kind in (("m", "overrides"), ("other", "epoch")):
        cluster.redis.lpush(f"gw:{{m:{model}}}:{kind}", "nonsense")
    # When a replica reads its files anew, and another one starts
    await reload(cluster.replicas)
    other.start()
    await until(other.is_ready, "ready")
    # Then both serve, the models concerned, too
    async with clients([*cluster.replicas, other]) as https:
        for http in https:
            for model in ("m", "other"):
                assert (await ask(http, key=KEY, model=model, **SHORT)).status == 200


async def test_a_public_replica_does_not_give_up_its_keys(cluster: Cluster, other: Replica) -> None:
    other.start()
    await until(other.is_ready, "ready")
    served = other.config_digest()
    async with clients([other]) as (http,):
        # When the keys are taken away, it keeps those that it has
        (cluster.config / "keys.yaml").unlink()
        (line,) = await reload([other])
        assert line["msg"] == "config_reload_failed"
        assert "keys.yaml" in line["problems"][0]
        assert "loopback" in line["problems"][0]
        assert other.config_digest() == served
        assert (await ask(http, **SHORT)).status == 401
        assert (await ask(http, key=KEY, **SHORT)).status == 200

        # When it is said that everybody may come, everybody may
        cluster.write("routing.yaml", {"auth": "none"})
        (line,) = await reload([other])
        assert line["msg"] == "config_reloaded"
        assert (await ask(http, **SHORT)).status == 200


async def test_a_lost_file_of_keys_lets_nobody_in(cluster: Cluster) -> None:
    (replica,) = cluster.replicas
    served = replica.config_digest()
    async with clients([replica]) as (http,):
        # When a reload comes while the file is being replaced
        (cluster.config / "keys.yaml").unlink()
        (line,) = await reload([replica])
        # Then the keys stay, though this replica is not public
        assert line["msg"] == "config_reload_failed"
        assert line["problems"] == [
            "error keys.yaml: is gone, and without it requests are anonymous "
            "(put it back, or say `auth: none` in routing.yaml)"
        ]
        assert replica.config_digest() == served
        assert (await ask(http, **SHORT)).status == 401
        assert (await ask(http, key=KEY, **SHORT)).status == 200
