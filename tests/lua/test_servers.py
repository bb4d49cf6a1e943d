"""Scripts under the servers that operators run: least rights, one slot per call, no memory left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.exceptions import ClusterCrossSlotError, ResponseError

from gateway.state.keys import Keys
from gateway.state.link import code_of
from tests.lua.happy import (
    DIGEST,
    EPOCH,
    HAPPY,
    RECORD,
    SAID,
    add_key,
    change_key,
    make_key,
    retier_keys,
    take_lease,
)
from tests.lua.pool_rig import PoolRig
from tests.lua.rig import SCRIPTS, Rig
from tests.redis_servers import (
    RedisServer,
    ScriptStore,
    cluster_node,
    private,
    script_store,
)

each_script = pytest.mark.parametrize("name", sorted(SCRIPTS))


def test_every_script_has_a_happy_path() -> None:
    assert HAPPY.keys() == SCRIPTS.keys()


class TestAUserAllowedOnlyThePassedKeys:
    @pytest.fixture
    def as_user(
        self, redis7: RedisServer, keys: Keys
    ) -> Iterator[tuple[Rig, Callable[[str], Rig]]]:
        """A rig for what comes before, and a maker of rigs that may touch one script's keys."""
        name = keys.namespace.replace(":", "-")
        with script_store(redis7) as store:
            anybody = Rig(store, keys)
            opened: list[redis.Redis] = []

            def restricted(script: str) -> Rig:
                allowed = [f"~{anybody.keys[kind]}" for kind in SCRIPTS[script].keys]
                store.client.execute_command(
                    "ACL", "SETUSER", name, "reset", "on", ">secret", "+@all", *allowed
                )
                client = redis.Redis.from_url(
                    redis7.url, username=name, password="secret", decode_responses=True
                )
                opened.append(client)
                return Rig(ScriptStore(client, takes_shebang=True, kind="redis"), keys)

            yield anybody, restricted
            for client in opened:
                client.close()
            store.client.execute_command("ACL", "DELUSER", name)

    @each_script
    def test_runs_a_script(self, as_user: tuple[Rig, Callable[[str], Rig]], name: str) -> None:
        anybody, restricted = as_user
        before, call = HAPPY[name]
        before(anybody)
        rig = restricted(name)
        rig.now_ms = anybody.now_ms

        call(rig)

    def test_is_refused_a_key_that_a_script_reaches_undeclared(
        self, as_user: tuple[Rig, Callable[[str], Rig]]
    ) -> None:
        """The guard itself: a script that builds a key of the same slot does not pass."""
        rig = as_user[1]("rows")
        text = "#!lua\nreturn redis.call('HGETALL', (string.gsub(KEYS[1], 'endpoints', 'claimed')))"

        with pytest.raises(ResponseError, match="can't access at least one of the keys"):
            rig.client.eval(text, 1, rig.keys["endpoints"])

    def test_is_refused_a_script_with_one_key_too_many(
        self, as_user: tuple[Rig, Callable[[str], Rig]]
    ) -> None:
        rig = as_user[1]("first_token")

        with pytest.raises(ResponseError):
            rig.settle("r.1")


@pytest.fixture(scope="module")
def cluster(redis_binary: Path) -> Iterator[RedisServer]:
    with cluster_node(redis_binary) as server:
        yield server


class TestAClusterNode:
    @pytest.fixture
    def rig(self, cluster: RedisServer, keys: Keys) -> Iterator[Rig]:
        with script_store(cluster) as store:
            yield Rig(store, keys)

    @each_script
    def test_finds_all_keys_of_one_call_in_one_slot(self, rig: Rig, name: str) -> None:
        before, call = HAPPY[name]
        before(rig)
        call(rig)

    def test_refuses_keys_of_two_models(self, rig: Rig, keys: Keys) -> None:
        rig.keys["claims"] = keys.model("another")["claims"]

        with pytest.raises(ClusterCrossSlotError):
            rig.admit("r.1")

    def test_refuses_an_undeclared_key_of_another_slot(
        self, rig: Rig, cluster: RedisServer
    ) -> None:
        if cluster.version < (7, 0):
            pytest.skip("servers before 7 let it pass")

        with pytest.raises(ResponseError, match=r"same slot|non local key"):
            rig.client.eval("#!lua\nreturn redis.call('GET', 'other')", 1, rig.keys["endpoints"])


@pytest.fixture(scope="module", params=["redis_binary", "old_redis_binary"])
def full(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with private(request.getfixturevalue(request.param)) as server:
        yield server


class TestAServerOutOfMemory:
    """What frees must run, or nothing would ever be freed; what takes must not."""

    @pytest.fixture
    def rig(self, full: RedisServer, keys: Keys) -> Iterator[Rig]:
        """Two claims in prefill, of which one has expired; then the memory is at its end."""
        with script_store(full) as store:
            rig = Rig(store, keys)
            rig.admit("dead.1", prompt=SAID, lease_ms=1)
            rig.admit("r.1", prompt=SAID)
            rig.later(1)
            rig.beat("r1", salt="s")
            make_key(rig)
            add_key(rig)
            store.client.config_set("maxmemory", 1)
            yield rig
            store.client.config_set("maxmemory", 0)

    @pytest.mark.parametrize("outcome", ["success", "failure", "auth", "connect", "neutral"])
    def test_settles(self, rig: Rig, outcome: str) -> None:
        assert rig.settle("r.1", outcome, status=500, unpin=True, prompt=SAID).status == "done"
        assert (rig.field("a:inflight"), rig.field("a:elephants")) == ("1", "1")
        assert rig.pin() is None

    def test_notes_what_is_cached(self, rig: Rig) -> None:
        rig.settle("r.1", "success", prompt=SAID)

        assert rig.hint("a")

    def test_settles_late(self, rig: Rig) -> None:
        rig.reap()

        assert rig.settle("dead.1", "failure").status == "late"

    def test_reaps(self, rig: Rig) -> None:
        assert rig.reap() == 1
        assert rig.field("a:prefill_tokens") == str(SAID.tokens)

    def test_renews(self, rig: Rig) -> None:
        assert rig.renew("r.1") == []

    def test_keeps_its_coordinator_which_tidies_up(self, rig: Rig) -> None:
        args = {"locations": "", "replicas": "", "limit": 9}

        take_lease(rig)
        assert rig.run("tidy_model", epoch=EPOCH, **args)[:2] == ["done", 1]

    def test_drops_a_stale_pin(self, rig: Rig) -> None:
        assert rig.pin() == "a"

        rig.run("drop_stale_pin", epoch=EPOCH, location="a")
        assert rig.pin() is None

    def test_resets_a_circuit(self, rig: Rig) -> None:
        assert rig.run("reset_circuit", location="a") == ["done", "closed"]

    def test_drops_a_pin(self, rig: Rig) -> None:
        rig.run("drop_pin")

        assert rig.pin() is None

    def test_explains(self, rig: Rig) -> None:
        assert rig.explain(prompt=SAID).location == "a"

    def test_tells_what_is_live(self, rig: Rig) -> None:
        assert rig.rows().status == "done"

    @pytest.mark.parametrize("name", ["replicas", "overrides", "pin"])
    def test_reads(self, rig: Rig, name: str) -> None:
        assert rig.run(name)[0] == "done"

    def test_finds_keys_and_revokes_them(self, rig: Rig) -> None:
        assert rig.run("key_find", digest=DIGEST, id="") == ["done", DIGEST, RECORD]
        assert rig.run("key_list", cursor="0", count=10)[2] == [DIGEST, RECORD]
        assert rig.run("key_revoke", id="alice") == ["done"]
        assert rig.run("key_find", digest=DIGEST, id="")[0] == "none"

    def test_removes_an_upstream_key(self, rig: Rig) -> None:
        assert PoolRig.beside(rig).remove() == "done"
        assert rig.run("pool_declared", epoch=-1)[2] == []

    @pytest.mark.parametrize("take", [make_key, change_key, retier_keys])
    def test_takes_no_key(self, rig: Rig, take: Callable[[Rig], None]) -> None:
        before = rig.state()

        with pytest.raises(ResponseError) as refused:
            take(rig)
        assert code_of(refused.value) == "OOM"
        assert rig.state() == before

    def test_takes_no_override(self, rig: Rig) -> None:
        before = rig.state()

        with pytest.raises(ResponseError) as refused:
            rig.override("weight:a", "0.5")
        assert code_of(refused.value) == "OOM"
        assert rig.state() == before

    def test_takes_no_first_token_and_the_settlement_counts_for_both(self, rig: Rig) -> None:
        before = rig.state()

        with pytest.raises(ResponseError) as refused:
            rig.first_token("r.1", prompt=SAID)
        assert code_of(refused.value) == "OOM"
        assert rig.state() == before
        assert rig.settle("r.1", "success", prompt=SAID).status == "done"

    def test_admits_nobody(self, rig: Rig) -> None:
        rig.reap()  # an old server lets a script go on that has freed something

        with pytest.raises(ResponseError) as refused:
            rig.admit("new.1", "b 1")
        assert code_of(refused.value) == "OOM"
