"""HAProxy with the configuration that ships, in front of real replicas."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cluster.harness import ROOT, Cluster, Replica, body, free_port, wait_until
from tests.cluster.load import Streams, ask, idle, until
from tests.redis_servers import missing

FAST = {"ttft_ms": 0, "tokens_per_s": 100_000, "output_tokens": 1}


@contextmanager
def haproxy(folder: Path, replicas: Sequence[Replica]) -> Iterator[str]:
    """HAProxy over these replicas; its URL."""
    binary = shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if binary is None:
        missing("needs haproxy")
    port = free_port()
    text = (ROOT / "deploy" / "haproxy.cfg").read_text("utf-8")
    servers = "\n".join(f"    server {r.name} 127.0.0.1:{r.port}" for r in replicas)
    text, lists = re.subn(r"(^ *server \S+ [\d.]+:\d+\n)+", servers + "\n", text, flags=re.M)
    text, binds = re.subn(r"^ *bind .*", f"    bind 127.0.0.1:{port}", text, flags=re.M)
    assert (lists, binds) == (1, 1)
    (folder / "haproxy.cfg").write_text(text, "utf-8")
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([binary, "-f", folder / "haproxy.cfg"], stdout=log, stderr=log)

    def listens() -> bool:
        assert process.poll() is None, (folder / "haproxy.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listens, "haproxy listening")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def http(cluster: Cluster, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of HAProxy in front of the paced cluster."""
    with haproxy(tmp_path, cluster.replicas) as url:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            yield client


async def test_a_stream_passes_as_it_comes_and_so_does_a_hang_up(
    cluster: Cluster, http: httpx.AsyncClient
) -> None:
    # Given streams that last half a minute: some flow, some are still silent
    flowing = Streams(http, 3)
    # Then their first tokens arrive long before their ends
    await until(flowing.all_flow, "first tokens", 10)
    for engine in cluster.engines:
        engine.fault(silent=True)
    silent = Streams(http, 3)

    def active() -> int:
        return sum(engine.counters()["active"] for engine in cluster.engines)

    await until(lambda: active() == 6, "all under way")

    # When the clients hang up
    await flowing.hang_up()
    await silent.hang_up()

    # Then the engines are free, and nothing is held
    await until(lambda: active() == 0, "free engines", 5)
    assert sum(engine.counters()["cancelled"] for engine in cluster.engines) == 6
    await idle(cluster)


async def test_a_request_is_not_sent_twice_though_its_replica_dies(
    cluster: Cluster, http: httpx.AsyncClient
) -> None:
    # Given a request under way
    for engine in cluster.engines:
        engine.fault(silent=True)
    content = json.dumps(body()).encode()
    reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
    # in one piece, for only such requests would HAProxy be able to repeat
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: concord\r\ncontent-length: %d\r\n\r\n%b"
        % (len(content), content)
    )
    await until(cluster.claims, "a claim")
    await until(lambda: requests(cluster) == 1, "a request")
    [serving] = [replica for replica in cluster.replicas if cluster.claims_of(replica)]

    # When its replica is killed
    serving.kill()

    # Then the client is told, and no other replica has been asked
    status = await reader.readline()
    writer.close()
    await writer.wait_closed()
    assert status.startswith(b"HTTP/1.1 502 ")
    assert requests(cluster) == 1


def requests(cluster: Cluster) -> int:
    """How many the engines have seen."""
    return sum(int(engine.counters()["requests"]) for engine in cluster.engines)


async def test_a_replica_that_takes_no_connection_costs_no_request(
    cluster: Cluster, http: httpx.AsyncClient
) -> None:
    cluster.replicas[0].kill()
    for _ in range(9):
        assert (await ask(http, max_tokens=1)).status == 200


async def test_a_stranger_does_not_choose_the_request_id(
    cluster: Cluster, http: httpx.AsyncClient
) -> None:
    ids = set()
    for _ in range(2):
        answer = await http.post(
            "/v1/chat/completions", json=body(max_tokens=1), headers={"x-request-id": "mine"}
        )
        ids.add(answer.headers["x-request-id"])
    # The replicas are on this host, whose word they take: the ids are HAProxy's.
    assert len(ids) == 2
    assert all(re.fullmatch(r"[0-9a-f-]{36}", one) for one in ids)


async def test_a_replica_is_replaced_without_an_error(tmp_path: Path, private_redis: str) -> None:
    # Given clients that never pause, and a replica that says for longer than HAProxy takes to
    # notice that it stops
    with (
        Cluster(
            tmp_path,
            private_redis,
            engines={"engine-a": FAST},
            replicas=2,
            drain_delay_s=4,
            routing={"state": {"socket_timeout_ms": 1000}},
        ) as cluster,
        haproxy(tmp_path, cluster.replicas) as url,
    ):
        statuses: set[int] = set()
        leaving = cluster.replicas[0]

        async def client() -> None:
            async with httpx.AsyncClient(base_url=url, timeout=30) as http:
                while leaving.is_running:
                    statuses.add((await http.post("/v1/chat/completions", json=body())).status_code)
                    await asyncio.sleep(0.01)

        # When it stops
        asking = [asyncio.create_task(client()) for _ in range(4)]
        await until(lambda: leaving.events("request"), "requests through it")
        leaving.signal(signal.SIGTERM)
        await asyncio.gather(*asking)

        # Then nobody has noticed
        assert statuses == {200}
        assert leaving.wait() == 0
