"""The composition root: builds a replica out of its parts and runs their lifetimes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp

from gateway import __version__
from gateway.admission.admit import Admission
from gateway.admission.claims import Claims
from gateway.admission.settlement import Settlement
from gateway.admission.upkeep import Upkeep
from gateway.api.errors import LastResort, on_gateway_error, on_http_exception
from gateway.api.front import FrontDoor
from gateway.api.health import Health
from gateway.api.lifecycle import Lifecycle
from gateway.api.models import Models
from gateway.api.openai import ChatCompletions
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.config.schema import Settings
from gateway.dispatch.aiohttp_transport import make_aiohttp_transport
from gateway.dispatch.http1 import Http1Transport
from gateway.dispatch.send import Dispatcher
from gateway.errors import GatewayError, StateUnavailable
from gateway.pipeline import Pipeline
from gateway.state.keys import Keys, encode_id
from gateway.state.redis import RedisRunner, connect
from gateway.state.scripts import folder, load_all
from gateway.state.store import Policy, Store
from gateway.telemetry.logs import event

CHAT = "/v1/chat/completions"


class Replica:
    """One gateway process: the web application, and the loops and connections behind it.

    MUST be made inside the running event loop that serves it.
    """

    def __init__(self, config: Config, redis_url: str, replica_id: str) -> None:
        settings = config.settings
        lease_ms = int(settings.state.lease_s * 1000)
        self.config = config
        self.lifecycle = Lifecycle()
        self._runner = _connect(redis_url, settings)
        self._transports: dict[str, httpx.AsyncBaseTransport] = {
            "http1": Http1Transport(),
            "aiohttp": make_aiohttp_transport(),
        }
        self._store = Store(self._runner, Keys(settings.state.namespace), _policy(settings))
        self._claims = Claims(replica_id)
        self._settlement = Settlement(
            self._store,
            self._claims,
            lease_ms=lease_ms,
            abort_grace_ms=settings.server.abort_grace_ms,
        )
        self._upkeep = Upkeep(
            self._store,
            self._claims,
            self._settlement,
            models=lambda: config.models,
            about=lambda: (
                f"host={encode_id(socket.gethostname())} version={__version__} "
                f"config={config.digest}"
            ),
            lease_ms=lease_ms,
            heartbeat_s=settings.state.heartbeat_s,
            replica_ttl_ms=int(settings.state.replica_ttl_s * 1000),
        )
        admission = Admission(self._store, self._claims, self._settlement, lease_ms=lease_ms)
        pipeline = Pipeline(config, admission, Dispatcher(self._transports))
        self.app = self._web(Authenticator(config), pipeline)

    def _web(self, authenticator: Authenticator, pipeline: Pipeline) -> ASGIApp:
        config = self.config
        models = Models(config, authenticator)
        health = Health(
            config,
            self._store,
            authenticator,
            self.lifecycle,
            state_is_available=lambda: self._runner.is_available,
        )
        chat = ChatCompletions(pipeline, authenticator, self.lifecycle, config.settings)
        app = Starlette(
            routes=[
                Route(CHAT, chat, methods=["POST"]),  # for other methods' 405
                Route("/v1/models", models.all),
                Route("/v1/models/{model_id:path}", models.one),
                Route("/livez", health.live),
                Route("/health/liveliness", health.live),
                Route("/readyz", health.ready),
                Route("/health/ready", health.ready),
                Route("/health/readiness", health.ready),
                Route("/health", health.summary),
                Route("/health/deep", health.deep),
                Route("/routing", health.routing),
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
        return FrontDoor({CHAT: chat}, app)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        upkeep = asyncio.create_task(self._upkeep.run())
        event("started", config_digest=self.config.digest)
        # What stands now stays. The collector, a twentieth of a request's time, looks at the rest.
        gc.collect()
        gc.freeze()
        self.lifecycle.is_started = True
        try:
            yield
        finally:
            upkeep.cancel()
            await asyncio.wait({upkeep})
            await self._settlement.drain(timeout_s=2.0)
            with contextlib.suppress(StateUnavailable):
                await self._upkeep.leave()
            for transport in self._transports.values():
                await transport.aclose()
            await self._runner.close()
            event("stopped")


def _connect(redis_url: str, settings: Settings) -> RedisRunner:
    timeout_s = settings.state.socket_timeout_ms / 1000
    return connect(redis_url, load_all(folder()), socket_timeout_s=timeout_s)


def _policy(settings: Settings) -> Policy:
    circuit = settings.circuit
    return Policy(
        failure_threshold=circuit.failure_threshold,
        cooldown_ms=int(circuit.cooldown_seconds * 1000),
        min_availability=circuit.min_availability,
        ewma_alpha=circuit.ewma_alpha,
    )
