"""The composition: connections, the configuration, the lease, and the leader's work under it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable

import httpx
from msgspec import structs

from coordinator.calibrate import Calibrator
from coordinator.current import Current, Known
from coordinator.lease import Lease
from coordinator.probe import Prober
from coordinator.quota import Quotas
from coordinator.reap import Reaper
from coordinator.recovery import Recovery
from coordinator.rounds import every
from coordinator.sample import Sampler
from coordinator.tally import Tally, sentence
from gateway import __version__
from gateway.admission.secret import Secret
from gateway.config.live import Source, keep_what_needs_restart
from gateway.config.result import Config, Loaded
from gateway.config.upstream_keys import roles_by_key
from gateway.dispatch.aiohttp_transport import make_aiohttp_transport
from gateway.dispatch.declarations import Declarations
from gateway.dispatch.http1 import Http1Transport
from gateway.dispatch.keypool import KeyPools
from gateway.dispatch.sealing import Seal
from gateway.dispatch.send import Dispatcher
from gateway.errors import ScriptBug, StateUnavailable
from gateway.state.caller_store import CallerStore
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.keys import Keys, encode_id
from gateway.state.look import look_at
from gateway.state.pool_store import PoolStore
from gateway.state.redis import connect
from gateway.state.scripts import folder, load_all
from gateway.state.store import Store
from gateway.state.supply_store import SupplyStore
from gateway.telemetry.logs import event

LOOK_EVERY_S = 3600.0
"""How often the leader looks at Redis; also when it begins."""
RESTART_S = 0.5


class Coordinator:
    """One coordinator, leader or not. MUST be made inside the running event loop, and closed."""

    def __init__(self, loaded: Loaded, config: Config, source: Source, holder: str) -> None:
        state, lease_s = config.settings.state, config.settings.coordinator.lease_s
        timeout_s = min(state.socket_timeout_ms / 1000, lease_s / 5)
        self._source = source
        self._runner = connect(source.redis_url, load_all(folder()), socket_timeout_s=timeout_s)
        self._transports: dict[str, httpx.AsyncBaseTransport] = {
            "http1": Http1Transport(),
            "aiohttp": make_aiohttp_transport(),
        }
        keys = Keys(state.namespace)
        store = Store(self._runner, keys)
        self._secret = Secret(config.secret)
        pool_store = PoolStore(self._runner, keys)
        seal = Seal(config.secret) if config.secret else None
        self._declarations = Declarations(pool_store, seal, self._secret)
        self._telling: set[asyncio.Task[None]] = set()
        self._pools = KeyPools(
            pool_store,
            self._declarations,
            self._secret,
            self._tell,
            configured=roles_by_key(config.routes),
            mute_ms=_mute_ms(config),
        )
        dispatcher = Dispatcher(self._transports, pools=self._pools)
        self._store = CoordinatorStore(self._runner, keys)
        self._known = Known(Current.of(loaded, config), store)
        self._tally = Tally()
        self._tick_s = state.lease_s / 3
        self._claims_lease_s = state.lease_s
        self.lease = Lease(
            self._store,
            holder,
            about=self._about,
            lease_s=lease_s,
            call_s=timeout_s,
        )
        self._prober = Prober(
            store,
            self._store,
            self._transports["http1"],
            self._known,
            self._tally,
            lease=self.lease,
        )
        self._recovery = Recovery(store, dispatcher, self._known, self._tally, lease=self.lease)
        supplies = SupplyStore(self._runner, keys)
        self._calibrator = Calibrator(
            self._store, supplies, self._known, self._tally, reader=holder
        )
        self._quotas = Quotas(supplies, self._store, self._transports["aiohttp"], self._known)
        self._sampler = Sampler(
            store,
            self._store,
            self._calibrator,
            dispatcher,
            known=self._known,
            tally=self._tally,
            lease=self.lease,
        )
        self._reaper = Reaper(
            self._runner,
            keys,
            self._store,
            CallerStore(self._runner, keys),
            GateStore(self._runner, keys, Channels(keys)),
            supplies=supplies,
            known=self._known,
            tally=self._tally,
            reaper=holder,
        )

    @property
    def state_is_available(self) -> bool:
        """Whether Redis answers."""
        return self._runner.is_available

    async def run(self) -> None:
        """Stand for election, and work while elected. Never returns."""
        event("started", config_digest=self._known.config.digest)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.lease.lead(self._work))
            tasks.create_task(every(self._tick_s, self._stand_by))

    async def close(self) -> None:
        """Let another lead at once, and close all connections."""
        await self.lease.leave()
        await asyncio.gather(*self._telling)
        for transport in self._transports.values():
            await transport.aclose()
        await self._runner.close()
        event("stopped")

    async def reload(self) -> None:
        """Read the configuration anew and work by it, unless something in it is wrong."""
        running = self._known.config
        loaded = await asyncio.to_thread(self._source.read_again, running)
        if loaded.config is None:
            problems = [str(problem) for problem in loaded.errors]
            event("config_reload_failed", level=logging.ERROR, problems=problems)
            return
        config, waiting = keep_what_needs_restart(loaded.config, running)
        if config.settings.coordinator != running.settings.coordinator:
            waiting = (*waiting, "coordinator.lease_s")
        kept = structs.replace(config.settings, coordinator=running.settings.coordinator)
        config = structs.replace(config, settings=kept)
        self._known.replace(Current.of(loaded, config))
        self._pools.follow(roles_by_key(config.routes), mute_ms=_mute_ms(config))
        event(
            "config_reloaded",
            config_digest=config.digest,
            needs_restart=list(waiting),
            warnings=[str(problem) for problem in loaded.warnings],
        )

    async def _work(self, epoch: int) -> None:
        """All that the leader does, until cancelled."""

        async def probe() -> None:
            await self._prober.round(epoch)

        async def calibrate() -> None:
            await self._calibrator.run(epoch)

        async def sample() -> None:
            await self._sampler.run(epoch)

        async def quotas() -> None:
            await self._quotas.run(epoch)

        async def sweep() -> None:
            await self._reaper.sweep(epoch)

        async def tick() -> None:
            await self._known.look()
            self._secret.adopt(self._known.salt)
            await self._reaper.tidy(epoch)
            counts = self._tally.take()
            words = " ".join(f"{what}={count}" for what, count in counts.items())
            await self._store.publish(epoch, "tick", words)
            event("tick", epoch=epoch, said=f"leads: {sentence(counts)}")

        async def look() -> None:
            await self._look(epoch)

        self._reaper.begin()
        async with asyncio.TaskGroup() as work:
            work.create_task(every(self._tick_s, tick))
            work.create_task(every(self._claims_lease_s, sweep))
            work.create_task(every(RESTART_S, probe))
            work.create_task(every(RESTART_S, self._declarations.watch))
            work.create_task(every(RESTART_S, self._recovery.run))
            work.create_task(every(RESTART_S, calibrate))
            work.create_task(every(RESTART_S, sample))
            work.create_task(every(RESTART_S, quotas))
            work.create_task(every(LOOK_EVERY_S, look))

    async def _look(self, epoch: int) -> None:
        """See whether state is safe in this Redis, and say loudly what is wrong."""
        warnings = (await look_at(self._runner)).warnings()
        for warning in warnings:
            event("redis_warning", level=logging.WARNING, said=warning)
        await self._store.publish(epoch, "redis", f"warnings={len(warnings)}")

    async def _stand_by(self) -> None:
        """Say in a sentence, where the leader says what it has done, who that is."""
        if self.lease.epoch is None:
            leader = self.lease.leader
            event("tick", said=f"stands by: {leader or 'nobody that is known of'} leads")

    def _tell(self, call: Callable[[], Awaitable[object]]) -> None:
        """Make a call in the background, once: that a key serves is told again soon."""

        async def told() -> None:
            with contextlib.suppress(StateUnavailable, ScriptBug):
                await call()

        task = asyncio.create_task(told())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def _about(self) -> str:
        host = encode_id(socket.gethostname())
        return f"host={host} version={__version__} config={self._known.config.digest}"


def _mute_ms(config: Config) -> int:
    return round(config.settings.upstream_keys.mute_seconds * 1000)


def new_holder_id() -> str:
    """An id for this process, new at every start."""
    return "c" + secrets.token_hex(4)
