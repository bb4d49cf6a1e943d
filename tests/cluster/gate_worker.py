"""One replica's gates as a process, which is told what to do through a unix socket.

Lines from there start requests, `<how many> <seconds at the upstream> <limit> <how long to wait>`.
Each request waits at the gate, then calls the upstream, a unix socket, too, and is a line back:
`<ticket> <number>`, or `saturated`. It ends when no more lines come and no request is left.
"""

from __future__ import annotations

import asyncio

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


def main(redis_url: str, upstream: str, orders: str, replica_id: str, lease_ms: int) -> None:
    """Do as one is told at the socket `orders`."""
    uvloop.run(_work(redis_url, upstream, orders, replica_id, lease_ms))


async def _work(redis_url: str, upstream: str, orders: str, replica_id: str, lease_ms: int) -> None:
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
            answers.write(b"saturated\n")
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
        answers.write(f"{place.ticket} {place.number}\n".encode())

    told, answers = await asyncio.open_unix_connection(orders)
    async with asyncio.TaskGroup() as requests:
        while line := await told.readline():
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
    answers.close()
    await answers.wait_closed()
