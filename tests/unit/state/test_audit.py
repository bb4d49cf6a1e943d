"""Every key is counted with its like, and told when it will not die, or will, as it should not."""

from __future__ import annotations

import pytest
import redis

from gateway.state.audit import Family, audit, problems_of
from gateway.state.keys import Keys
from gateway.state.redis import connect
from gateway.state.scripts import folder, load_all
from tests.redis_servers import RedisServer

SCRIPTS = load_all(folder())


@pytest.fixture
def client(redis_server: RedisServer) -> redis.Redis:
    return redis.Redis.from_url(redis_server.url, decode_responses=True)


async def families(server: RedisServer, keys: Keys) -> dict[str, Family]:
    runner = connect(server.url, SCRIPTS, socket_timeout_s=5)
    found = await audit(runner, keys)
    await runner.close()
    assert found is not None
    return {one.name: one for one in found}


async def test_namespace_without_keys_has_no_family(redis_server: RedisServer, keys: Keys) -> None:
    assert await families(redis_server, keys) == {}


async def test_keys_are_counted_by_family(
    redis_server: RedisServer, keys: Keys, client: redis.Redis
) -> None:
    for model in ("m", "vendor/m:x"):
        client.hset(keys.model(model)["endpoints"], "a:inflight", "1")
        client.expire(keys.model(model)["endpoints"], 60)
        for caller in range(700):
            client.set(keys.caller(model, f"{caller:016x}")["pin"], "location=a", ex=60)
    client.set(keys.cluster()["salt"], "s")

    found = await families(redis_server, keys)

    assert {name: one.keys for name, one in found.items()} == {
        "{m:…}:endpoints": 2,
        "{m:…}:pin:…": 1400,
        "{cluster}:salt": 1,
    }
    assert found["{m:…}:pin:…"].bytes > 1400 * 50
    assert {name: one.lasting for name, one in found.items()} == {
        "{m:…}:endpoints": 0,
        "{m:…}:pin:…": 0,
        "{cluster}:salt": 1,
    }
    assert problems_of(list(found.values())) == []


async def test_key_that_will_not_die_and_one_that_will_by_mistake_are_told(
    redis_server: RedisServer, keys: Keys, client: redis.Redis
) -> None:
    stays, dies = keys.model("m")["claims"], keys.model("m")["epoch"]
    client.zadd(stays, {"r.1": 1})
    client.set(dies, "1", ex=60)

    told = problems_of(list((await families(redis_server, keys)).values()))

    assert told == [
        f"1 keys of {{m:…}}:claims have no TTL and stay, such as {stays}",
        f"1 keys of {{m:…}}:epoch have a TTL and will be lost, such as {dies}",
    ]


async def test_limits_may_last_or_not(
    redis_server: RedisServer, keys: Keys, client: redis.Redis
) -> None:
    for tag, seconds in (("key:a", None), ("key:b", 60)):
        client.hset(keys.limits(tag)["limits"], "x", "1")
        if seconds:
            client.expire(keys.limits(tag)["limits"], seconds)

    found = await families(redis_server, keys)

    assert problems_of(list(found.values())) == []
    assert found["{c:…}:limits"].lasting == 1


async def test_key_that_is_not_ours_and_one_that_is_huge_are_told(
    redis_server: RedisServer, keys: Keys, client: redis.Redis
) -> None:
    client.set(f"{keys.namespace}:something", "x", ex=60)
    client.set(keys.cluster()["salt"], "x" * 2 * 1024 * 1024)

    strange, huge = problems_of(list((await families(redis_server, keys)).values()))

    assert strange == f"1 keys are not ours, such as {keys.namespace}:something: who writes them?"
    assert huge.startswith(f"{keys.cluster()['salt']} has 2.")
