"""Clients leave at any moment, and replicas do; nothing is left of either."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx

from tests.cluster.harness import Cluster, body, wait_until
from tests.integration.conftest import SCRIPTED_PORT, Gateway
from tests.integration.scripted import ROLE, delta, upstream

PATH = "/v1/chat/completions"


async def test_a_client_that_leaves_takes_its_upstream_request_along(gateway: Gateway) -> None:
    # Given a stream under way at an engine that then says no more
    async with upstream(SCRIPTED_PORT, ROLE, delta(content="x"), stays=True) as talking:
        async with gateway.http() as http:
            asked = body(model="scripted-alone", stream=True)
            async with http.stream("POST", PATH, json=asked) as answer:
                async for _ in answer.aiter_bytes():
                    break
        # When the client has gone, so has the request
        async with asyncio.timeout(10):
            await talking.hung_up.wait()


async def test_clients_that_leave_at_any_moment_leave_nothing_behind(gateway: Gateway) -> None:
    # Given an engine that takes longer than anybody waits
    gateway.fault(delay_ms=10_000)
    async with gateway.http() as http:

        async def leave_after(moment_s: float, *, stream: bool) -> None:
            asked = body(model="pair", stream=stream)
            asking = asyncio.ensure_future(http.post(PATH, json=asked))
            await asyncio.wait({asking}, timeout=moment_s)
            asking.cancel()
            await asyncio.wait({asking})

        # When clients leave after a few milliseconds or many
        await asyncio.gather(*(leave_after(n / 100, stream=n % 2 == 0) for n in range(60)))
    # Then nothing is claimed (see the fixture), and the engine was told of those who left
    await asyncio.to_thread(wait_until, gateway.is_idle, "nothing claimed or in flight")
    assert gateway.first.counters()["cancelled"] > 0
    assert gateway.asked[1] == 0


async def test_a_stop_ends_open_streams_and_half_sent_requests_when_the_drain_is_over(
    tmp_path: Path, private_redis: str
) -> None:
    # Given a replica with a silent stream, and a client that has sent half of its request
    routing = {"server": {"drain_timeout_s": 0.5, "sse_keepalive_s": 0.1}}
    with Cluster(tmp_path, private_redis, replicas=1, routing=routing) as cluster:
        replica = cluster.replicas[0]
        for engine in cluster.engines:
            engine.fault(silent=True)
        async with httpx.AsyncClient(base_url=cluster.url, timeout=30) as http:
            asking = asyncio.ensure_future(http.post(PATH, json=body(stream=True)))
            reader, writer = await asyncio.open_connection("127.0.0.1", replica.port)
            half = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"
            writer.write(half % PATH.encode())
            await asyncio.to_thread(wait_until, cluster.claims, "a claim")
            # When it is told to stop
            replica.signal(signal.SIGTERM)
            assert await asyncio.to_thread(replica.wait) == 0
            # Then the stream was told before it was cut, and nothing is left
            answer = await asking
            assert '"shutting_down"' in answer.text
            await reader.read()
            writer.close()
        assert cluster.is_idle()
