"""A cluster known by its configuration and its Redis: the admin surface, without a replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from gateway.admin.circuits import CircuitReset, reset_circuit
from gateway.admin.doctor import Diagnosis, examine
from gateway.admin.door import read_query
from gateway.admin.explain import Explainer, Question
from gateway.admin.explanation import Explanation
from gateway.admin.gates import GateReader
from gateway.admin.keys import CallerKeys
from gateway.admin.status import Status, StatusReader
from gateway.admin.targets import model_of
from gateway.admission.secret import Secret
from gateway.commands.reach import CannotTell
from gateway.config.result import Config
from gateway.errors import GatewayError, ScriptBug, StateUnavailable
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.key_store import KeyStore
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.pool_store import PoolStore
from gateway.state.redis import RedisRunner, connect
from gateway.state.scripts import folder, load_all
from gateway.state.store import Store
from gateway.telemetry.logs import LOGGER

TIMEOUT_S = 5.0

T = TypeVar("T")


class _Open(Struct, frozen=True):
    """The store while a command runs."""

    store: Store
    key_store: KeyStore
    gate_store: GateStore
    pool_store: PoolStore
    server: RedisRunner


class OnRedis:
    """The cluster behind a Redis (`reach.Cluster`)."""

    def __init__(self, config: Config, redis_url: str) -> None:
        self._config = config
        self._redis_url = redis_url

    def explain(self, asked: Mapping[str, str]) -> Explanation:
        """Where a request would go that met a replica well connected to every endpoint."""

        async def work(open: _Open) -> Explanation:
            secret = await self._secret(open)
            policy = Policy.of(self._config.settings)
            explainer = Explainer(
                self._config,
                open.store,
                policy,
                secret,
                CallerKeys(self._config, open.key_store),
                replica_id="",
            )
            return await explainer.explain(read_query(asked, Question))

        return self._run(work)

    def status(self) -> Status:
        """Everything at once."""

        async def work(open: _Open) -> Status:
            secret = await self._secret(open)
            gates = GateReader(self._config, open.gate_store, open.pool_store, secret)
            reader = StatusReader(
                self._config,
                open.store,
                open.server,
                gates,
                pool_store=open.pool_store,
                secret=secret,
            )
            return await reader.read()

        return self._run(work)

    def reset_circuit(self, model: str, endpoint: str) -> CircuitReset:
        """Forget an endpoint's failures."""

        async def work(open: _Open) -> CircuitReset:
            return await reset_circuit(open.store, model_of(self._config, model), endpoint)

        return self._run(work)

    def examine_redis(self) -> Diagnosis:
        """Look at its Redis and all our keys in it."""

        async def work(open: _Open) -> Diagnosis:
            secret = await self._secret(open)
            return await examine(self._config, open.server, open.store, open.pool_store, secret)

        return self._run(work)

    async def _secret(self, open: _Open) -> Secret:
        """The cluster's, as its replicas know it."""
        secret = Secret(self._config.secret)
        secret.adopt((await open.store.replicas()).salt)
        return secret

    def _run(self, work: Callable[[_Open], Awaitable[T]]) -> T:
        return asyncio.run(self._connected(work))

    async def _connected(self, work: Callable[[_Open], Awaitable[T]]) -> T:
        LOGGER.addHandler(logging.NullHandler())  # what fails is said in a sentence, below
        try:
            runner = connect(self._redis_url, load_all(folder()), socket_timeout_s=TIMEOUT_S)
        except ValueError as error:
            raise CannotTell(str(error)) from error
        keys = Keys(self._config.settings.state.namespace)
        try:
            return await work(
                _Open(
                    Store(runner, keys),
                    KeyStore(runner, keys),
                    GateStore(runner, keys, Channels(keys)),
                    PoolStore(runner, keys),
                    runner,
                )
            )
        except StateUnavailable as away:
            raise CannotTell(f"Redis cannot be asked: {away.__cause__ or away.message}") from away
        except GatewayError as error:
            raise CannotTell(error.message) from error
        except ScriptBug as error:  # such as a key that somebody has made something else of
            raise CannotTell(f"Redis refuses a script: {error}") from error
        finally:
            await runner.close()
