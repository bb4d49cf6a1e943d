"""A replica's side of gates, several of them in one process, over a store that is real."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from gateway.admission.secret import Secret
from gateway.config.upstream_schema import UpstreamConcurrency
from gateway.core.gate import Gate
from gateway.core.route import Route
from gateway.errors import StateUnavailable
from gateway.gates.hold import EngineHold
from gateway.gates.limiter import UpstreamLimiter
from gateway.gates.place import Place
from gateway.gates.waiting import Waiting
from gateway.state.gate_store import GateReply, GateStore
from gateway.state.grants import Channels, Grants
from gateway.state.keys import Keys
from gateway.state.redis import connect, listen
from gateway.state.scripts import folder, load_all
from tests.fakes import builders

SCRIPTS = load_all(folder())
KEY = "sk-upstream"
SOON_S = 10.0
"""Far beyond any wait that is meant; what takes longer hangs."""
ROUTE = builders.route(provider="openai")
TWO = UpstreamConcurrency(initial=2)

T = TypeVar("T")


class GateReplica:
    """One replica; `async with` runs it."""

    def __init__(
        self,
        url: str,
        keys: Keys,
        replica_id: str = "a",
        settings: UpstreamConcurrency = TWO,
        *,
        secret: str | None = "secret",
        lease_ms: int = 15_000,
        timeout_s: float = 2.0,
        grants: Grants | None = None,
    ) -> None:
        self.runner = connect(url, SCRIPTS, socket_timeout_s=timeout_s)
        self.channels = Channels(keys)
        self.store = GateStore(self.runner, keys, self.channels)
        hears = listen(url, self.channels, replica_id=replica_id, timeout_s=timeout_s)
        self.waiting = Waiting(
            self.store,
            grants or hears,
            self._deliver,
            replica_id=replica_id,
            lease_ms=lease_ms,
        )
        self.limiter = UpstreamLimiter(self.waiting, Secret(secret), settings)
        self.hold = EngineHold(self.waiting, acquire_timeout_s=settings.acquire_timeout)
        self._under_way: set[asyncio.Task[None]] = set()
        self._started: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.waiting.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ending = [self._running, *self._started]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        await self.settled()
        await self.runner.close()

    def _deliver(self, call: Callable[[], Awaitable[object]]) -> None:
        async def until_heard() -> None:
            async with asyncio.timeout(SOON_S):
                while True:
                    with contextlib.suppress(StateUnavailable):
                        await call()
                        return
                    await asyncio.sleep(0.05)

        task = asyncio.create_task(until_heard())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def start(self, request: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have a request come, which ends with the replica at the latest."""
        self._started.append(asyncio.create_task(request))
        return self._started[-1]

    async def settled(self) -> None:
        """Wait until the store knows all that has been left."""
        while self._under_way:
            await asyncio.gather(*self._under_way)

    async def enter(self, route: Route = ROUTE, key: str = KEY) -> Place:
        """Take a place, waiting for it."""
        place = await self.limiter.enter(route, key)
        assert place
        return place

    async def full(self, places: int = 2) -> list[Place]:
        """Have all places held."""
        return [await self.enter() for _ in range(places)]

    async def leave(self, place: Place, status: int | None = 200) -> None:
        """Give a place back, and wait until the store knows."""
        self.limiter.leave(place, status)
        await self.settled()

    async def line_up(self, count: int = 1) -> list[asyncio.Task[Place]]:
        """Have so many requests stand in line, one after the other."""
        lined_up = []
        for _ in range(count):
            before = (await self.state()).waiting
            lined_up.append(self.start(self.enter()))
            await self.until(lambda state, n=before: state.waiting == n + 1)
        return lined_up

    async def state(self, gate: Gate | None = None) -> GateReply:
        """How full a gate is; the usual account's unless told otherwise."""
        found = gate or self.limiter.gate(ROUTE, KEY)
        assert found
        return await self.store.state(found)

    async def until(
        self, holds: Callable[[GateReply], bool], gate: Gate | None = None
    ) -> GateReply:
        """Wait until a gate is so."""
        for _ in range(2000):
            if holds(state := await self.state(gate)):
                return state
            await asyncio.sleep(0.005)
        raise AssertionError(f"it is {state}")
