"""A replica that is told to stop says so, lets requests end or tells them, and tidies up."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import DRAIN_S, PER_S
from tests.cluster.harness import Cluster, Replica, body
from tests.cluster.load import Streams, ask, clients, idle, until


async def test_a_terminated_replica_says_so_at_once_and_lets_its_streams_finish(
    cluster: Cluster,
) -> None:
    # Given a replica with streams that end within its drain
    leaving = cluster.replicas[0]
    async with clients([leaving]) as (http,):
        streams = Streams(http, 20, max_tokens=int(1.5 * PER_S))
        await until(streams.all_flow, "first tokens")

        # When it is told to stop
        leaving.signal(signal.SIGTERM)

        # Then it is not ready at once, yet still serves those who have not heard
        await until(lambda: leaving.readiness() == (503, "draining"), "draining", 0.4)
        assert (await ask(http, max_tokens=1)).status == 200
        # And every stream ends as it should
        for answer in await streams.ended():
            assert (answer.status, answer.is_whole) == (200, True)
    left_nothing(cluster, leaving)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_streams_longer_than_the_drain_end_with_an_error_event(
    cluster: Cluster, number: signal.Signals
) -> None:
    # Given a replica with streams that do not end within its drain, some still without a token
    leaving = cluster.replicas[0]
    async with clients([leaving]) as (http,):
        long = Streams(http, 10)
        await until(long.all_flow, "first tokens")
        for engine in cluster.engines:
            engine.fault(silent=True)
        waiting = Streams(http, 5)
        whole = asyncio.create_task(ask(http))
        await until(lambda: len(cluster.claims()) == 16, "all under way")

        # When it is told to stop
        leaving.signal(number)

        # Then they are told why they end: by an event, or by a status where that was still open
        for answer in await long.ended():
            assert (answer.status, answer.is_whole, answer.code) == (200, False, "shutting_down")
        for answer in (*await waiting.ended(), await whole):
            assert (answer.status, answer.code, answer.retry_after) == (503, "shutting_down", 1)
    left_nothing(cluster, leaving)


def left_nothing(cluster: Cluster, replica: Replica) -> None:
    """Check that a stopped replica has ended well, and has tidied up by itself."""
    assert replica.wait() == 0
    assert not cluster.claims_of(replica)
    assert replica.id not in cluster.redis.hgetall("gw:{cluster}:replicas")
    assert cluster.is_idle()
    assert "Traceback" not in replica.text()


async def test_a_second_signal_does_not_wait(cluster: Cluster) -> None:
    # Given a replica that drains, with long streams
    leaving = cluster.replicas[0]
    async with clients([leaving]) as (http,):
        streams = Streams(http, 10)
        await until(streams.all_flow, "first tokens")
        leaving.signal(signal.SIGINT)
        await until(lambda: leaving.readiness() == (503, "draining"), "draining", 0.4)

        # When it is told once more
        leaving.signal(signal.SIGINT)

        # Then it ends before the drain is over
        await asyncio.to_thread(leaving.wait, 0.5 + DRAIN_S - 0.5)
        assert leaving.wait() == 0
        await streams.ended()
    await idle(cluster)


@pytest.fixture(scope="module")
def gushing(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    """One replica and an engine whose answers are long and come at once."""
    with Cluster(
        tmp_path_factory.mktemp("gushing"),
        module_redis,
        engines={"engine": {"ttft_ms": 0, "tokens_per_s": 0, "output_tokens": 40_000}},
        routing={"server": {"drain_timeout_s": 1}},
        replicas=1,
        drain_delay_s=0.5,
    ) as cluster:
        yield cluster


@pytest.mark.parametrize("twice", [False, True], ids=["one_signal", "two_signals"])
@pytest.mark.parametrize("stalls_in", ["its_request", "its_answer"])
async def test_a_client_that_stalls_cannot_keep_a_replica_from_ending(
    gushing: Cluster, stalls_in: str, twice: bool
) -> None:
    # Given a client that sends half a request, or reads nothing of a long answer
    gushing.reset()
    leaving = gushing.replicas[0]
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", leaving.port))
        request = json.dumps(body(stream=True)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(request)}"
        client.sendall(head.encode() + b"\r\n\r\n" + request[:10])
        if stalls_in == "its_answer":
            client.sendall(request[10:])
            await until(gushing.claims, "its stream")
            await asyncio.sleep(1)
            assert len(gushing.claims()) == 1

        # When the replica is told to stop
        leaving.signal(signal.SIGTERM)
        if twice:
            await until(lambda: leaving.readiness() == (503, "draining"), "draining", 0.4)
            leaving.signal(signal.SIGTERM)

        # Then it hangs up in the end, and ends well
        await asyncio.to_thread(leaving.wait, 10)
    left_nothing(gushing, leaving)
