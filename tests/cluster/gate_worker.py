"""One replica's gates as a process: `gate_worker REDIS_URL UPSTREAM ID LEASE_MS`.

Lines on stdin start requests, `<how many> <seconds at the upstream> <limit> <how long to wait>`.
Each request waits at the gate, then calls the upstream, a unix socket, and is a line on stdout:
`<ticket> <number>`, or `saturated`. It ends when stdin does and no request is left.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from gateway.admission.claims import Claims
from gateway.admission.secret import Secret
from gateway.admission.settlement import Settlement
from gateway.config.upstream_schema import UpstreamConcurrency
from gateway.core.route import Route
from gateway.gates.limiter import UpstreamLimiter
from gateway.gates.place import UpstreamSaturated
from gateway.gates.waiting import Waiting
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.keys import Keys
from gateway.state.redis import connect, listen
from gateway.state.scripts import folder, load_all
from gateway.state.store import Store

ROUTE = Route(
    model_id="m",
    location="upstream",
    provider="upstream",
    kind="vllm",
    base_url="https://upstream.invalid",
    upstream_model="m",
)
SECRET = "secret"
KEY = "sk-upstream"
TIMEOUT_S = 2.0


async def work(redis_url: str, upstream: str, replica_id: str, lease_ms: int) -> None:
    """Do as stdin says."""
    keys = Keys()
    channels = Channels(keys)
    runner = connect(redis_url, load_all(folder()), socket_timeout_s=TIMEOUT_S)
    settlement = Settlement(Store(runner, keys), Claims(replica_id), lease_ms=lease_ms)
    waiting = Waiting(
        GateStore(runner, keys, channels),
        listen(redis_url, channels, replica_id=replica_id, timeout_s=TIMEOUT_S),
        settlement.deliver,
        replica_id=replica_id,
        lease_ms=lease_ms,
    )
    running = asyncio.create_task(waiting.run())

    async def request(hold_s: float, limiter: UpstreamLimiter) -> None:
        try:
            place = await limiter.enter(ROUTE, KEY)
        except UpstreamSaturated:
            print("saturated", flush=True)
            return
        assert place
        reader, writer = await asyncio.open_unix_connection(upstream)
        try:
            await reader.readexactly(1)  # it has been counted
            await asyncio.sleep(hold_s)
            writer.write(b".")
            await reader.read()  # and is counted no more
        finally:
            writer.close()
            limiter.leave(place, 200)
        print(place.ticket, place.number, flush=True)

    stdin = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    print("ready", flush=True)
    async with asyncio.TaskGroup() as requests:
        while line := await stdin.readline():
            count, hold_s, limit, wait_s = line.split()
            rule = UpstreamConcurrency(
                initial=int(limit),
                max=int(limit),
                success_interval=1_000_000,
                acquire_timeout=float(wait_s),
            )
            limiter = UpstreamLimiter(waiting, Secret(SECRET), rule)
            for _ in range(int(count)):
                requests.create_task(request(float(hold_s), limiter))
    await settlement.drain(TIMEOUT_S)
    running.cancel()
    await asyncio.wait({running})
    await runner.close()


if __name__ == "__main__":
    _, redis_url, upstream, replica_id, lease_ms = sys.argv
    uvloop.run(work(redis_url, upstream, replica_id, int(lease_ms)))
