"""A changed CONCORD_SECRET is told of: what was declared of upstream keys counts for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.admin.doctor import examine
from gateway.admin.gates import GateReader
from gateway.admin.status import StatusReader
from gateway.admission.secret import Secret
from gateway.core.digests import upstream_key_id
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.pool_store import AddedKey, PoolStore
from tests.fakes.builders import config, model, route
from tests.unit.admin.conftest import Embedded

BEFORE, NOW = Secret("the one before"), Secret("the one now")
CONFIG = config(model(route("a", provider="acme"), route("b", provider="other")))


def digest(secret: Secret, key: str) -> str:
    assert secret.key
    return upstream_key_id(secret.key, key)


class Cluster:
    """Replicas that live, and how operators look at them."""

    def __init__(self, store: Embedded) -> None:
        self.store = store
        self.pools = PoolStore(store.runner, store.keys)

    async def declare(self, secret: Secret) -> None:
        """Add a key and keep another, as under this secret."""
        await self.pools.add(
            "acme",
            AddedKey(id="acme/1", key=digest(secret, "k1"), min_role="pro", sealed="c2VhbGVk"),
        )
        await self.pools.retier("acme", digest(secret, "k0"), "internal")

    async def beat(self, replica: str, secret: Secret) -> None:
        about = f"host=h version=1 config=digest secret={secret.mark}"
        await self.store.beat_replica(replica, about=about, ttl_ms=60_000)

    async def warnings(self, secret: Secret = NOW) -> Sequence[str]:
        """What status and doctor say, which is the same."""
        store = self.store
        gates = GateReader(
            CONFIG, GateStore(store.runner, store.keys, Channels(store.keys)), self.pools, NOW
        )
        reader = StatusReader(
            CONFIG, store, store.runner, gates, pool_store=self.pools, secret=secret
        )
        found = await examine(CONFIG, store.runner, store, self.pools, secret)
        status, doctor = (
            [one for one in said if "another CONCORD_SECRET" in one]
            for said in ((await reader.read()).warnings, found.problems)
        )
        assert status == doctor
        return status


@pytest.fixture
def cluster(store: Embedded) -> Cluster:
    return Cluster(store)


async def test_what_was_declared_under_another_secret_is_listed_with_what_to_do(
    cluster: Cluster,
) -> None:
    await cluster.declare(BEFORE)
    await cluster.beat("r1", NOW)

    (warning,) = await cluster.warnings()

    kept = f"keys kept for a role (1): {digest(BEFORE, 'k0')} for internal"
    assert f"counts for nothing: added keys (1): acme/1; {kept}. Put that secret back" in warning
    assert warning.startswith("provider acme: ")


async def test_what_was_declared_under_this_one_is_not(cluster: Cluster) -> None:
    await cluster.declare(NOW)
    await cluster.beat("r1", NOW)

    assert await cluster.warnings() == []


async def test_it_is_judged_by_the_replicas_secret_and_not_by_a_commands(cluster: Cluster) -> None:
    await cluster.declare(BEFORE)
    await cluster.beat("r1", BEFORE)

    assert await cluster.warnings(NOW) == []


async def test_while_no_replica_lives_it_is_judged_by_the_commands(cluster: Cluster) -> None:
    await cluster.declare(BEFORE)

    assert len(await cluster.warnings(NOW)) == 1
    assert await cluster.warnings(BEFORE) == []


async def test_nothing_is_said_where_no_secret_is_known(cluster: Cluster) -> None:
    await cluster.declare(BEFORE)

    assert await cluster.warnings(Secret(None)) == []
