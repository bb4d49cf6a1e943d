"""The composition root: builds a replica out of its parts and runs their lifetimes.

Connections, claims and loops live as long as the replica. All that depends on the configuration is
built per configuration, and put in place at once when a reload brings another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import time
from collections.abc import AsyncIterator, Mapping

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from gateway import __version__
from gateway.admin.probes import Probes
from gateway.admin.reload import Reloaded
from gateway.admin.surface import Admin
from gateway.admission.admit import Admission
from gateway.admission.callers import CallerLimits
from gateway.admission.claims import Claims
from gateway.admission.offloads import Offloads
from gateway.admission.overrides import KnownOverrides
from gateway.admission.profiles import KnownProfiles
from gateway.admission.reservations import Reservations
from gateway.admission.secret import Secret
from gateway.admission.settlement import Settlement
from gateway.admission.supplies import Supplies
from gateway.admission.upkeep import Upkeep
from gateway.api.errors import LastResort, on_gateway_error, on_http_exception
from gateway.api.front import Doors, FrontDoor
from gateway.api.health import Health
from gateway.api.lifecycle import Lifecycle
from gateway.api.models import Models
from gateway.api.openai import ChatCompletions
from gateway.auth.keys import Authenticator
from gateway.auth.made import MadeKeys
from gateway.config.live import Source, keep_what_needs_restart
from gateway.config.result import Config
from gateway.config.upstream_keys import roles_by_key
from gateway.dispatch.aiohttp_transport import make_aiohttp_transport
from gateway.dispatch.declarations import Declarations
from gateway.dispatch.gating import Gates
from gateway.dispatch.http1 import Http1Transport
from gateway.dispatch.keypool import KeyPools
from gateway.dispatch.sealing import Seal
from gateway.dispatch.send import Dispatcher
from gateway.errors import GatewayError, ScriptBug, StateUnavailable
from gateway.gates.hold import EngineHold
from gateway.gates.limiter import UpstreamLimiter
from gateway.gates.waiting import Waiting
from gateway.pipeline import Pipeline
from gateway.routing.candidates import Planner
from gateway.routing.prompts import Prompts
from gateway.state.caller_store import CallerStore
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.key_store import KeyStore
from gateway.state.keys import Keys, encode_id
from gateway.state.offloads import OffloadLog
from gateway.state.policy import Policy
from gateway.state.pool_store import PoolStore
from gateway.state.redis import connect, listen
from gateway.state.scripts import folder, load_all
from gateway.state.store import Store
from gateway.state.supply_store import SupplyStore
from gateway.telemetry.logs import event
from gateway.telemetry.otlp import open_tracer
from gateway.telemetry.tracing import Tracer

CHAT = "/v1/chat/completions"


class Replica:
    """One gateway process: the web application, and the loops and connections behind it.

    MUST be made inside the running event loop that serves it. Raises `CannotTrace` where the
    environment asks for traces in a way that we do not have.
    """

    def __init__(self, config: Config, source: Source, replica_id: str) -> None:
        state = config.settings.state
        self._tracer = open_tracer(source.env, replica_id)
        self.config = config
        self.lifecycle = Lifecycle()
        self._source = source
        self._reloading = asyncio.Lock()
        self._started_s = int(time.time())
        self._lease_ms = int(state.lease_s * 1000)
        timeout_s = state.socket_timeout_ms / 1000
        self._runner = connect(source.redis_url, load_all(folder()), socket_timeout_s=timeout_s)
        self._transports: dict[str, httpx.AsyncBaseTransport] = {
            "http1": Http1Transport(),
            "aiohttp": make_aiohttp_transport(),
        }
        self._traced = _traced(self._transports, self._tracer)
        keys = Keys(state.namespace)
        self._store = Store(self._runner, keys)
        self._key_store = KeyStore(self._runner, keys)
        self._made_keys = MadeKeys(self._key_store)
        self._caller_store = CallerStore(self._runner, keys)
        self._coordinator_store = CoordinatorStore(self._runner, keys)
        self._claims = Claims(replica_id)
        self._reservations = Reservations(self._caller_store, replica_id, lease_ms=self._lease_ms)
        self._supplies = Supplies(
            SupplyStore(self._runner, keys), self._claims, lease_ms=self._lease_ms
        )
        self._settlement = Settlement(
            self._store, self._claims, self._supplies, lease_ms=self._lease_ms
        )
        self._overrides = KnownOverrides(self._store)
        self._profiles = KnownProfiles(self._store, lambda: tuple(self.config.models.values()))
        self._secret = Secret(config.secret)
        self._pool_store = PoolStore(self._runner, keys)
        self._offload_log = OffloadLog(self._runner, keys)
        seal = Seal(config.secret) if config.secret else None
        self._declarations = Declarations(self._pool_store, seal, self._secret)
        channels = Channels(keys)
        self._gate_store = GateStore(self._runner, keys, channels)
        self._waiting = Waiting(
            self._gate_store,
            listen(source.redis_url, channels, replica_id=replica_id, timeout_s=timeout_s),
            self._settlement.deliver,
            replica_id=replica_id,
            lease_ms=self._lease_ms,
        )
        self._upkeep = Upkeep(
            self._store,
            self._claims,
            self._reservations,
            self._settlement,
            self._secret,
            supplies=self._supplies,
            models=lambda: self.config.models,
            about=lambda: (
                f"host={encode_id(socket.gethostname())} version={__version__} "
                f"config={self.config.digest} secret={self._secret.mark}"
            ),
            lease_ms=self._lease_ms,
            heartbeat_s=state.heartbeat_s,
            replica_ttl_ms=int(state.replica_ttl_s * 1000),
        )
        self.app = FrontDoor(self._doors(config))

    async def reload(self) -> Reloaded:
        """Read the configuration anew and serve by it, unless something in it is wrong.

        Requests under way end under the one they began with.
        """
        async with self._reloading:
            loaded = await asyncio.to_thread(self._source.read_again, self.config)
            if loaded.config is None:
                problems = [str(problem) for problem in loaded.errors]
                event("config_reload_failed", level=logging.ERROR, problems=problems)
                return Reloaded(config_digest=self.config.digest, problems=loaded.problems)
            config, waiting = keep_what_needs_restart(loaded.config, self.config)
            changed = config != self.config  # a key's secret is in no digest
            doors = self._doors(config)
            self.config, self.app.doors = config, doors
            event(
                "config_reloaded",
                config_digest=config.digest,
                needs_restart=list(waiting),
                warnings=[str(problem) for problem in loaded.warnings],
            )
            await self._read_overrides()
            return Reloaded(
                config_digest=config.digest,
                changed=changed,
                needs_restart=waiting,
                problems=loaded.problems,
            )

    def _doors(self, config: Config) -> Doors:
        """Build all that depends on the configuration."""
        settings = config.settings
        policy = Policy.of(settings)
        authenticator = Authenticator(config, self._made_keys)
        planner = Planner()
        admission = Admission(
            self._store,
            self._claims,
            self._settlement,
            self._overrides,
            policy,
            profiles=self._profiles,
            supplies=self._supplies,
            lease_ms=self._lease_ms,
            abort_grace_ms=settings.server.abort_grace_ms,
        )
        prompts = Prompts(self._secret, policy, settings.prefill)
        pools = KeyPools(
            self._pool_store,
            self._declarations,
            self._secret,
            self._settlement.deliver,
            configured=roles_by_key(config.routes),
            mute_ms=round(settings.upstream_keys.mute_seconds * 1000),
        )
        limiter = UpstreamLimiter(self._waiting, self._secret, settings.upstream_concurrency)
        hold = EngineHold(
            self._waiting,
            acquire_timeout_s=settings.upstream_concurrency.acquire_timeout,
            host_id=config.host_id,
        )
        gates = Gates(limiter, hold)
        dispatcher = Dispatcher(self._transports, self._traced, pools, gates)
        callers = CallerLimits(
            self._caller_store,
            self._reservations,
            self._settlement,
            window_ms=round(settings.limits.window_seconds * 1000),
        )
        pipeline = Pipeline(
            config,
            planner,
            prompts,
            admission,
            dispatcher,
            callers=callers,
            offloads=Offloads(self._offload_log, self._settlement.deliver),
        )
        chat = ChatCompletions(pipeline, authenticator, self.lifecycle, settings, self._tracer)
        models = Models(config, authenticator, created_s=self._started_s)
        health = Health(
            config,
            self._store,
            authenticator,
            self.lifecycle,
            state_is_available=lambda: self._runner.is_available,
        )
        admin = Admin(
            config,
            authenticator,
            self._store,
            self._key_store,
            self._caller_store,
            pool_store=self._pool_store,
            gate_store=self._gate_store,
            offload_log=self._offload_log,
            server=self._runner,
            policy=policy,
            secret=self._secret,
            replica_id=self._claims.replica_id,
            probes=Probes(config, self._store, self._coordinator_store, dispatcher),
            reload=self.reload,
        )
        app = Starlette(
            routes=[
                Route(CHAT, chat, methods=["POST"]),  # for other methods' 405
                *models.routes(),
                *health.routes(),
                *admin.routes(),
            ],
            middleware=[Middleware(LastResort)],
            exception_handlers={
                GatewayError: on_gateway_error,
                HTTPException: on_http_exception,
            },
            lifespan=self._lifespan,
        )
        # A redirect would name whatever host the caller claims to have asked.
        app.router.redirect_slashes = False
        return Doors({CHAT: chat}, app)

    async def _read_overrides(self) -> None:
        """Learn what operators have changed before requests have to ask for it.

        What is in the way of that for one model must keep nobody from serving the others.
        """
        with contextlib.suppress(StateUnavailable):
            for model in self.config.models.values():
                try:
                    await self._overrides.read(model)
                except ScriptBug as error:
                    event("script_bug", level=logging.ERROR, model=model.id, error=str(error))

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        with contextlib.suppress(StateUnavailable, ScriptBug):  # the loop says what is wrong
            await self._upkeep.beat()
        await self._read_overrides()
        upkeep = asyncio.create_task(self._upkeep.run())
        watching = asyncio.create_task(self._declarations.watch())
        waiting = asyncio.create_task(self._waiting.run())
        profiles = asyncio.create_task(self._profiles.run())
        event("started", config_digest=self.config.digest)
        # What stands now stays. The collector, a twentieth of a request's time, looks at the rest.
        gc.collect()
        gc.freeze()
        self.lifecycle.is_started = True
        try:
            yield
        finally:
            upkeep.cancel()
            profiles.cancel()
            watching.cancel()
            waiting.cancel()
            await asyncio.wait({watching, waiting, upkeep, profiles})
            await self._settlement.drain(timeout_s=2.0)
            with contextlib.suppress(StateUnavailable):
                await self._upkeep.leave()
            for transport in self._transports.values():
                await transport.aclose()
            await self._runner.close()
            await self._tracer.close()
            event("stopped")


def _traced(
    transports: Mapping[str, httpx.AsyncBaseTransport], tracer: Tracer
) -> Mapping[str, httpx.AsyncBaseTransport]:
    """The same transports under instrumentation, where anything is recorded."""
    if tracer.provider is None:
        return {}
    # Loaded where it is needed: it brings half of OpenTelemetry with it.
    from gateway.dispatch.traced import TracedTransport

    return {
        name: TracedTransport(transport, tracer.provider) for name, transport in transports.items()
    }
