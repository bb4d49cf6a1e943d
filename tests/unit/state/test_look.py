"""A look at Redis says what is wrong with it, and what it may not see is nothing wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
import redis

from gateway.errors import StateUnavailable
from gateway.state.look import Look, look_at
from gateway.state.redis import EMBEDDED_URL, RedisRunner, connect
from gateway.state.scripts import folder, load_all
from tests.redis_servers import OwnServer, RedisServer

SCRIPTS = load_all(folder())
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
    """A server that answers what it is told to."""

    def __init__(self, *, ahead_s: float = 0.0, slowlog: Any = (), **said: str) -> None:
        self.said = {**WELL, **said}
        self.ahead_s = ahead_s
        self.slowlog = slowlog

    async def info(self) -> Mapping[str, str]:
        return self.said

    async def ask(self, *command: str | int) -> Any:
        if command[0] == "TIME":
            seconds, fraction = divmod(time.time() + self.ahead_s, 1)
            return [str(int(seconds)), str(int(fraction * 1e6))]
        return self.slowlog

    def script_of(self, digest: str) -> str | None:
        return {"d1": "admit"}.get(digest)


def entry(ms: float, digest: str = "d1", *, ago_s: float = 1, verb: str = "EVALSHA") -> list[Any]:
    return [1, int(time.time() - ago_s), int(ms * 1000), [verb, digest, "1", "key"], "", ""]


async def test_server_that_is_well_is_no_warning() -> None:
    assert (await look_at(Telling())).warnings() == []


@pytest.mark.parametrize(
    ("said", "warning"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
        ({"redis_version": "6.0.20"}, "Redis 6.0.20 is older than 6.2"),
        ({"redis_version": "5.0"}, "Redis 5.0 is older than 6.2"),
        ({"maxmemory": "1100"}, "more than 90% of its maxmemory"),
        ({"rdb_last_bgsave_status": "err"}, "the last snapshot of Redis failed"),
        ({"aof_last_write_status": "err"}, "the last AOF of Redis failed"),
        ({"aof_enabled": "0"}, "Redis keeps no append-only file"),
        ({"aof_enabled": "0", "config_file": "/etc/redis.conf"}, "keeps no append-only file"),
    ],
)
async def test_what_is_wrong_with_it_is_said(said: dict[str, str], warning: str) -> None:
    (told,) = (await look_at(Telling(**said))).warnings()
    assert warning in told


@pytest.mark.parametrize(
    "said",
    [
        {"redis_version": "6.2.0"},
        {"redis_version": "10.0.1"},
        {"maxmemory": "1200"},
        {"aof_enabled": "0", "config_file": "/tmp/concord-redis-x/redis.conf"},
    ],
    ids=["oldest", "later", "room is left", "private to an up"],
)
async def test_what_is_just_right_is_no_warning(said: dict[str, str]) -> None:
    assert (await look_at(Telling(**said))).warnings() == []


@pytest.mark.parametrize(
    ("ahead_s", "told"),
    [(3.0, "3.0 s ahead of"), (-90.0, "90.0 s behind"), (0.5, None), (-0.5, None)],
)
async def test_clock_is_compared_with_this_hosts(ahead_s: float, told: str | None) -> None:
    warnings = (await look_at(Telling(ahead_s=ahead_s))).warnings()
    assert bool(warnings) == bool(told)
    assert all(told and told in warning for warning in warnings)


async def test_slow_scripts_of_the_last_hour_are_named_with_the_longest_time() -> None:
    slowlog = [entry(7), entry(12.4), entry(4.9), entry(99, ago_s=3700), entry(8, "d9")]
    look = await look_at(Telling(slowlog=[*slowlog, entry(99, verb="KEYS")]))
    assert look.slow_scripts is not None
    assert [(one.name, one.times, one.longest_ms) for one in look.slow_scripts] == [
        ("admit", 2, 12.4),
        ("d9", 1, 8.0),
    ]
    assert "the script admit took up to 12 ms in the last hour, 2 times" in look.warnings()[0]


async def test_real_server_is_seen_with_its_clock_and_its_slow_scripts(
    own_server: OwnServer,
) -> None:
    server = own_server("appendonly yes", "slowlog-log-slower-than 0")
    runner = connect(server.url, SCRIPTS, socket_timeout_s=5)
    await runner.run("replicas", {"replicas": "gwtest:r", "salt": "gwtest:s"}, {})
    look = await look_at(runner)
    await runner.close()
    assert (look.policy, look.persistence) == ("noeviction", "aof")
    assert look.ahead_ms is not None
    assert abs(look.ahead_ms) < 1000  # it is this host's own clock
    assert look.slow_scripts == []  # a script of ours takes no milliseconds
    assert look.warnings() == []


def test_script_is_known_by_its_digest_in_either_form() -> None:
    runner = RedisRunner(None, SCRIPTS, None)  # type: ignore[arg-type]
    from gateway.state.scripts import sha1

    for shebang in (True, False):
        assert runner.script_of(sha1(SCRIPTS["admit"].text(shebang=shebang))) == "admit"
    assert runner.script_of("0" * 40) is None


async def test_what_an_acl_forbids_is_not_known_and_no_warning(own_server: OwnServer) -> None:
    server = own_server()
    acl = "on >pw ~* +@all -@admin -@dangerous"
    with redis.Redis.from_url(server.url) as operator:
        operator.execute_command("ACL", "SETUSER", "few", *acl.split())
    url = server.url.replace("unix://", "unix://few:pw@")
    runner = connect(url, SCRIPTS, socket_timeout_s=5)
    look = await look_at(runner)
    assert (look.version, look.policy, look.slow_scripts) == (None, None, None)
    assert look.warnings() == []
    assert runner.is_available
    await runner.close()


async def test_embedded_store_is_no_warning() -> None:
    runner = connect(EMBEDDED_URL, SCRIPTS, socket_timeout_s=5)
    look: Look = await look_at(runner)
    await runner.close()
    assert look.warnings() == []


async def test_server_that_is_away_is_an_outage() -> None:
    runner = connect("unix:///nowhere/redis.sock", SCRIPTS, socket_timeout_s=0.2)
    with pytest.raises(StateUnavailable):
        await look_at(runner)
    await runner.close()


async def test_question_is_answered_by_the_server_itself(server: RedisServer) -> None:
    runner = connect(server.url, SCRIPTS, socket_timeout_s=5)
    assert await runner.ask("ECHO", "hello") == "hello"
    assert await runner.ask("NO-SUCH-COMMAND") is None
    await runner.close()
