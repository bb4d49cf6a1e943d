"""The runner on real servers that forget scripts, forbid, hand over, fill up and are busy."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
import redis

from gateway.errors import ScriptBug, StateUnavailable
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.redis import EMBEDDED_URL, connect, make_link
from tests.redis_servers import OwnServer, RedisServer, private
from tests.unit.state.caller import PATIENT_S, SCRIPTS, SOON_S, Caller, fails


class TestScriptsThatTheServerDoesNotKnow:
    async def test_are_loaded_on_first_use(self, caller: Caller) -> None:
        assert await caller.beat() == 1

    async def test_are_loaded_again_after_a_flush(
        self, caller: Caller, operator: redis.Redis
    ) -> None:
        for _ in range(3):
            operator.script_flush()
            assert await caller.beat() == 1

    async def test_are_loaded_as_the_server_takes_them_that_has_come_in_its_place(
        self,
        redis7: RedisServer,
        own_server: OwnServer,
        old_redis_binary: Path,
        keys: Keys,
        tmp_path: Path,
    ) -> None:
        # Given a server of today at an address, and a caller that has used it
        servers = [own_server(), own_server(binary=old_redis_binary)]
        address = tmp_path / "redis.sock"
        address.symlink_to(servers[0].url.removeprefix("unix://"))
        caller = Caller(f"unix://{address}", keys)
        assert await caller.beat() == 1
        # When an older one takes its place
        address.unlink()
        address.symlink_to(servers[1].url.removeprefix("unix://"))
        with redis.Redis.from_url(servers[0].url) as operator:
            operator.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        # Then nothing is amiss
        assert await caller.beat() == 1
        await caller.runner.close()

    async def test_are_run_though_somebody_keeps_flushing(
        self, server: RedisServer, caller: Caller
    ) -> None:
        ended = asyncio.Event()

        async def flush() -> None:
            link = make_link(server.url, timeout_s=PATIENT_S)
            while not ended.is_set():
                await link.call("SCRIPT", "FLUSH")
            await link.close()

        flushing = asyncio.create_task(flush())
        async with asyncio.timeout(SOON_S):
            for _ in range(20):
                assert await asyncio.gather(*[caller.beat() for _ in range(5)]) == [1] * 5
            ended.set()
            await flushing


class TestAUserWithFewRights:
    @pytest.mark.parametrize("denied", ["-script", "-script|load"])
    async def test_without_script_falls_back_to_eval_and_asks_no_more(
        self, redis7: RedisServer, own_server: OwnServer, keys: Keys, denied: str
    ) -> None:
        server = own_server()
        with redis.Redis.from_url(server.url, decode_responses=True) as operator:
            operator.execute_command(
                "ACL", "SETUSER", "few", "on", ">pw", "~*", "+@all", "-@admin", "+script", denied
            )
            caller = Caller(server.url.replace("unix://", "unix://few:pw@"), keys)
            for _ in range(3):
                operator.script_flush()
                assert await caller.beat() == 1
            await caller.runner.close()

            stats = operator.info("commandstats")
        refused = [row["rejected_calls"] for name, row in stats.items() if "script|load" in name]
        assert sum(refused) == 1

    async def test_without_info_is_taken_for_one_of_redis_7(
        self, redis7: RedisServer, own_server: OwnServer, keys: Keys
    ) -> None:
        server = own_server()
        with redis.Redis.from_url(server.url) as operator:
            operator.execute_command("ACL", "SETUSER", "few", "on", ">pw", "~*", "+@all", "-info")
        caller = Caller(server.url.replace("unix://", "unix://few:pw@"), keys)

        assert await caller.beat() == 1
        await caller.runner.close()

    async def test_without_its_keys_is_turned_away_until_that_is_mended(
        self, server: RedisServer, operator: redis.Redis, keys: Keys
    ) -> None:
        operator.execute_command("ACL", "SETUSER", "few", "on", ">pw", "~other", "+@all")
        caller = Caller(server.url.replace("unix://", "unix://few:pw@"), keys)

        for _ in range(5):
            await fails(caller)
        assert not caller.runner.is_available
        operator.execute_command("ACL", "SETUSER", "few", "allkeys")
        caller.clock.now += 1.0

        assert await caller.beat() == 1
        await caller.runner.close()

    async def test_that_has_to_authenticate_since_is_turned_away(
        self, caller: Caller, operator: redis.Redis
    ) -> None:
        await caller.admit("r.1")
        operator.config_set("requirepass", "new")
        operator.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        with pytest.raises(StateUnavailable):
            await caller.admit("r.2")  # a command of more than ten arguments


async def test_a_database_that_the_server_does_not_have_is_an_outage(
    server: RedisServer, keys: Keys
) -> None:
    caller = Caller(f"{server.url}?db=4096", keys)

    assert "out of range" in str((await fails(caller)).__cause__)
    for _ in range(4):
        await fails(caller)
    assert not caller.runner.is_available
    await caller.runner.close()


class TestAServerThatCannotNow:
    async def test_is_a_replica_until_it_is_promoted(
        self, caller: Caller, operator: redis.Redis
    ) -> None:
        await caller.beat()
        operator.replicaof("127.0.0.1", 1)
        await fails(caller)

        operator.replicaof("NO", "ONE")

        assert await caller.beat() == 1

    async def test_is_a_replica_without_its_master(
        self, caller: Caller, operator: redis.Redis
    ) -> None:
        await caller.beat()
        operator.config_set("replica-serve-stale-data", "no")
        operator.replicaof("127.0.0.1", 1)

        await fails(caller)

    async def test_has_too_few_replicas(self, caller: Caller, operator: redis.Redis) -> None:
        operator.config_set("min-replicas-to-write", 1)
        await fails(caller)

        operator.config_set("min-replicas-to-write", 0)

        assert await caller.beat() == 1

    async def test_has_lost_its_slots(self, redis_binary: Path, keys: Keys) -> None:
        config = ["bind 127.0.0.1", "cluster-enabled yes"]
        with private(redis_binary, *config) as server:
            caller = Caller(server.url, keys)
            await fails(caller)
            await caller.runner.close()

    async def test_is_busy_with_a_script(
        self, server: RedisServer, caller: Caller, operator: redis.Redis
    ) -> None:
        # Given somebody's endless script, and a server that says so soon
        await caller.beat()
        operator.config_set("lua-time-limit", 5)
        link = make_link(server.url, timeout_s=SOON_S)
        endless = asyncio.create_task(link.call("EVAL", "while true do end", 0))
        await asyncio.to_thread(wait_until_busy, operator)

        # When, then
        assert not (await fails(caller)).may_have_happened
        operator.script_kill()
        with pytest.raises(redis.ResponseError):
            await endless
        await link.close()
        assert await caller.beat() == 1

    async def test_opens_the_breaker_after_several_and_is_tried_again(
        self, caller: Caller, operator: redis.Redis
    ) -> None:
        operator.config_set("min-replicas-to-write", 1)
        for _ in range(5):
            await fails(caller)
        assert not caller.runner.is_available

        operator.config_set("min-replicas-to-write", 0)
        await fails(caller)
        caller.clock.now += 1.0

        assert await caller.beat() == 1
        assert caller.runner.is_available


class TestAServerOutOfMemory:
    async def test_admits_nobody_and_still_frees(
        self, caller: Caller, operator: redis.Redis
    ) -> None:
        await caller.admit("r.1")
        operator.config_set("maxmemory", 1)

        for i in range(8):
            with pytest.raises(StateUnavailable):
                await caller.admit(f"new.{i}")

        assert await caller.reap() == 0, "what frees memory is not kept away"
        assert not caller.runner.is_available, "and operators are told"

        operator.config_set("maxmemory", 0)
        await caller.admit("r.2")
        assert caller.runner.is_available


def wait_until_busy(operator: redis.Redis) -> None:
    with contextlib.suppress(redis.ResponseError):
        while operator.ping():
            pass


async def test_script_that_refuses_its_arguments_is_our_own_fault(caller: Caller) -> None:
    args: dict[str, str | int] = {
        "claim": "r.1",
        "location": "a",
        "outcome": "unheard-of",
        "status": 0,
        "live_replicas": 1,
        "unpin": 0,
        "prompt_tokens": 0,
        "fingerprint": "",
        "anchor": "",
        "taken": "",
        "used": "",
        "cooling": "",
        "noted": "",
        "rules": Policy().to_record,
    }
    for _ in range(6):
        with pytest.raises(ScriptBug, match="settle: BADARG outcome"):
            await caller.runner.run("settle", caller.keys.caller("x", ""), args)

    assert caller.runner.is_available


async def test_embedded_store_runs_the_same_scripts(keys: Keys) -> None:
    runner = connect(EMBEDDED_URL, SCRIPTS, socket_timeout_s=PATIENT_S)

    args: dict[str, str | int] = {"replica": "r1", "about": "x", "ttl_ms": 6_000, "salt": "s"}
    reply = await runner.run("beat_replica", keys.cluster(), args)

    assert reply == ["done", 1, "s"]
    await runner.close()


def test_url_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="Redis URL"):
        make_link("http://localhost", timeout_s=1)
