"""What a server says of itself, where it says anything."""

from __future__ import annotations

import pytest
import redis

from gateway.errors import StateUnavailable
from gateway.state.redis import EMBEDDED_URL, connect
from gateway.state.scripts import folder, load_all
from tests.redis_servers import OwnServer, RedisServer

SCRIPTS = load_all(folder())


async def test_server_tells_its_version_and_policy(server: RedisServer) -> None:
    runner = connect(server.url, SCRIPTS, socket_timeout_s=2)
    said = await runner.info()
    await runner.close()
    assert said["redis_version"].startswith(".".join(map(str, server.version)))
    assert said["maxmemory_policy"] == "noeviction"
    assert int(said["used_memory"]) > 0


async def test_server_that_forbids_the_question_tells_nothing_and_is_no_outage(
    own_server: OwnServer,
) -> None:
    server = own_server()
    with redis.Redis.from_url(server.url) as operator:
        operator.execute_command("ACL", "SETUSER", "few", "on", ">pw", "~*", "+@all", "-info")
    url = server.url.replace("unix://", "unix://few:pw@")
    runner = connect(url, SCRIPTS, socket_timeout_s=2)
    for _ in range(9):
        assert await runner.info() == {}
    assert runner.is_available
    await runner.close()


async def test_embedded_store_tells_nothing() -> None:
    runner = connect(EMBEDDED_URL, SCRIPTS, socket_timeout_s=2)
    assert await runner.info() == {}
    await runner.close()


async def test_server_that_is_away_is_an_outage() -> None:
    runner = connect("unix:///nowhere/redis.sock", SCRIPTS, socket_timeout_s=0.2)
    for _ in range(9):
        with pytest.raises(StateUnavailable):
            await runner.info()
    assert not runner.is_available
    await runner.close()
