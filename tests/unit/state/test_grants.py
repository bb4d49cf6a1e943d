"""Where a replica hears of its grants: what it hears, and that it goes on hearing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import redis

from gateway.state import grants
from gateway.state.grants import Channels, Grants
from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL, listen
from gateway.telemetry.logs import LOGGER
from tests.redis_servers import RedisServer, cluster_node

SOON_S = 10.0
TAG = "u:openai:0123456789ab"


@contextlib.asynccontextmanager
async def hearing(hears: Grants) -> AsyncIterator[AsyncGenerator[str, None]]:
    async with contextlib.aclosing(hears.tickets()) as tickets:
        yield tickets


async def next_of(tickets: AsyncGenerator[str, None]) -> str:
    async with asyncio.timeout(SOON_S):
        return await anext(tickets)


def subscription(url: str, keys: Keys) -> Grants:
    return listen(url, Channels(keys), replica_id="a", timeout_s=2.0)


async def test_it_hears_what_is_published_on_its_replicas_channel(
    server: RedisServer, operator: redis.Redis, keys: Keys
) -> None:
    async with hearing(subscription(server.url, keys)) as tickets:
        assert await next_of(tickets) == "", "some may have been missed before"

        operator.publish(f"{keys.grants()}b", "b.1")
        for ticket in ("a.1", "a.2"):
            assert operator.publish(f"{keys.grants()}a", ticket) == 1

        assert [await next_of(tickets), await next_of(tickets)] == ["a.1", "a.2"]


async def test_it_subscribes_again_when_the_connection_is_lost_and_says_so(
    server: RedisServer, operator: redis.Redis, keys: Keys
) -> None:
    async with hearing(subscription(server.url, keys)) as tickets:
        for n in range(3):
            assert await next_of(tickets) == ""
            operator.publish(f"{keys.grants()}a", f"a.{n}")
            assert await next_of(tickets) == f"a.{n}"

            operator.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


async def test_it_finds_a_server_that_was_not_there(
    own_server: Callable[..., RedisServer], keys: Keys, tmp_path: Path
) -> None:
    path = tmp_path / "redis.sock"
    async with hearing(subscription(f"unix://{path}", keys)) as tickets:
        first = asyncio.ensure_future(anext(tickets))
        await asyncio.sleep(0.1)
        assert not first.done()

        path.symlink_to(own_server().url.removeprefix("unix://"))

        async with asyncio.timeout(SOON_S):
            assert await first == ""


async def test_it_gives_up_a_connection_that_has_fallen_silent(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server that greets, and then says nothing any more
    monkeypatch.setattr(grants, "SILENCE_S", 0.02)
    accepted = asyncio.Semaphore(0)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while (said := await reader.read(65536)) and b"SUBSCRIBE" not in said:
                writer.write(b"+OK\r\n" * said.count(b"*"))
            accepted.release()
            await reader.read()
        writer.close()

    path = tmp_path / "redis.sock"
    async with (
        await asyncio.start_unix_server(greet, path),
        hearing(subscription(f"unix://{path}", keys)) as tickets,
    ):
        # When it is listened to
        listening = asyncio.ensure_future(anext(tickets))

        # Then it is connected to again and again
        async with asyncio.timeout(SOON_S):
            await accepted.acquire()
            await accepted.acquire()
        listening.cancel()
        await asyncio.wait({listening})


async def test_one_that_sends_pings_is_kept_by_who_answers_them(
    server: RedisServer, operator: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "SILENCE_S", 0.02)
    async with hearing(subscription(server.url, keys)) as tickets:
        assert await next_of(tickets) == ""
        later = asyncio.ensure_future(anext(tickets))
        await asyncio.sleep(0.2)

        operator.publish(f"{keys.grants()}a", "a.1")

        async with asyncio.timeout(SOON_S):
            assert await later == "a.1", "and not that it has subscribed again"


async def test_a_server_that_refuses_is_told_of(
    redis7: RedisServer, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a user without channels
    name = keys.namespace.replace(":", "-")
    with redis.Redis.from_url(redis7.url) as client:
        allowed = ["reset", "on", ">secret", "+@all", "~*"]
        client.execute_command("ACL", "SETUSER", name, *allowed)
        url = redis7.url + ("&" if "?" in redis7.url else "?") + f"username={name}&password=secret"
        LOGGER.addHandler(caplog.handler)
        try:
            # When
            async with hearing(subscription(url, keys)) as tickets:
                listening = asyncio.ensure_future(anext(tickets))
                for _ in range(500):
                    if not caplog.records:
                        await asyncio.sleep(0.01)
                listening.cancel()
                await asyncio.wait({listening})
        finally:
            LOGGER.removeHandler(caplog.handler)
            client.execute_command("ACL", "DELUSER", name)

    # Then
    assert {record.getMessage() for record in caplog.records} == {"grants_unheard"}


async def test_cancellation_is_never_lost(server: RedisServer, keys: Keys) -> None:
    async def listens() -> None:
        async with hearing(subscription(server.url, keys)) as tickets:
            async for _ in tickets:
                pass

    for steps in range(60):
        task = asyncio.create_task(listens())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=SOON_S)
        assert task.cancelled(), f"after {steps} steps it went on"


async def test_the_embedded_store_tells_nothing(keys: Keys) -> None:
    async with hearing(listen(EMBEDDED_URL, Channels(keys), replica_id="a", timeout_s=1)) as none:
        listening = asyncio.ensure_future(anext(none))
        await asyncio.sleep(0.01)

        assert not listening.done()
        listening.cancel()
        await asyncio.wait({listening})


def test_on_one_server_all_gates_share_a_replicas_channel(keys: Keys) -> None:
    channels = Channels(keys)

    assert channels.of(TAG) == channels.of("e:localhost:80") == ("PUBLISH", keys.grants())


class TestACluster:
    @pytest.fixture
    def own_cluster(self, redis7: RedisServer, redis_binary: Path) -> Iterator[RedisServer]:
        with cluster_node(redis_binary) as server:
            yield server

    @pytest.fixture
    def node(self, own_cluster: RedisServer) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(own_cluster.url, decode_responses=True) as client:
            yield client

    async def test_has_a_sharded_channel_for_each_gate_in_its_slot(
        self, own_cluster: RedisServer, node: redis.Redis, keys: Keys
    ) -> None:
        channels = Channels(keys)
        hears = listen(own_cluster.url, channels, replica_id="a", timeout_s=2.0)
        hears.expect(TAG)
        async with hearing(hears) as tickets:
            # Given one gate that was expected before there was a connection, and one after
            assert await next_of(tickets) == ""
            hears.expect("e:localhost:80")
            assert await next_of(tickets) == ""
            assert channels.are_sharded

            # When grants are published as the scripts do
            for tag, ticket in ((TAG, "a.1"), ("e:localhost:80", "a.2")):
                publish, channel = channels.of(tag)
                slots = {
                    node.execute_command("CLUSTER", "KEYSLOT", name)
                    for name in (channel, keys.gate(tag)["gate"])
                }
                assert len(slots) == 1
                assert publish == "SPUBLISH"
                script = "#!lua\nreturn redis.call(ARGV[1], ARGV[2], ARGV[3])"
                gate = keys.gate(tag)["gate"]
                assert node.eval(script, 1, gate, publish, f"{channel}a", ticket) == 1

            # Then
            assert [await next_of(tickets), await next_of(tickets)] == ["a.1", "a.2"]
