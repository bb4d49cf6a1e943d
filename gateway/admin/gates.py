"""The gates in front of upstream accounts and engines, as all replicas see them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gateway.admission.secret import Secret
from gateway.config.location import is_local
from gateway.config.result import Config
from gateway.core.digests import upstream_key_id
from gateway.core.gate import Gate
from gateway.core.overrides import Overrides
from gateway.core.route import Route
from gateway.errors import StateUnavailable
from gateway.gates.hold import engine_gate
from gateway.gates.limiter import account_gate, label_of
from gateway.routing.candidates import policy_of
from gateway.state.gate_store import GateReply, GateStore
from gateway.state.pool_store import PoolStore


class GateStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One gate: of a provider's key, or of an engine."""

    provider: str = ""
    key_fingerprint: str = ""
    engine: str = ""
    limit: int
    in_flight: int
    """Places that are taken."""
    waiting: int


class Bucket(Struct, frozen=True, kw_only=True):
    """The gate of an upstream account, and what its limit is learned from."""

    provider: str
    key_fingerprint: str
    limit: int
    in_flight: int
    waiting: int
    successes_since_probe: int
    probing: bool


class ConcurrencyConfig(Struct, frozen=True, kw_only=True):
    """The rule by which limits are learned."""

    enabled: bool
    initial_limit: int
    max_limit: int
    probe_success_interval: int
    acquire_timeout_sec: float


class Concurrency(Struct, frozen=True, kw_only=True):
    """The rule, and what it has come to."""

    config: ConcurrencyConfig
    buckets: Sequence[Bucket]


class GateReader:
    """Reads gates under one configuration. Each method raises `StateUnavailable`."""

    def __init__(
        self, config: Config, store: GateStore, pool_store: PoolStore, secret: Secret
    ) -> None:
        self._config = config
        self._store = store
        self._pool_store = pool_store
        self._secret = secret
        self._routes = [route for model in config.models.values() for route in model.routes]

    async def all(self, overrides: Mapping[str, Overrides]) -> list[GateStatus]:
        """Every gate; `overrides` of the models say which engines have one."""
        accounts, engines = await self._accounts(), self._engines(overrides)
        states = await self._states([*accounts, *engines])
        return [
            GateStatus(
                **gate.about, limit=at.limit, in_flight=at.in_flight, waiting=at.waiting + at.aside
            )
            for gate, at in states
        ]

    async def concurrency(self) -> Concurrency:
        """Those of upstream accounts."""
        settings = self._config.settings.upstream_concurrency
        states = await self._states(await self._accounts())
        return Concurrency(
            config=ConcurrencyConfig(
                enabled=settings.enabled,
                initial_limit=settings.initial,
                max_limit=settings.max,
                probe_success_interval=settings.success_interval,
                acquire_timeout_sec=settings.acquire_timeout,
            ),
            buckets=[
                Bucket(
                    **gate.about,
                    limit=at.limit,
                    in_flight=at.in_flight,
                    waiting=at.waiting + at.aside,
                    successes_since_probe=at.successes,
                    probing=bool(at.probing),
                )
                for gate, at in states
            ],
        )

    async def _states(self, gates: Iterable[Gate]) -> list[tuple[Gate, GateReply]]:
        each = list(gates)
        return list(zip(each, await asyncio.gather(*map(self._store.state, each)), strict=True))

    async def _accounts(self) -> list[Gate]:
        """By provider and fingerprint, each once."""
        settings = self._config.settings.upstream_concurrency
        remote = [route for route in self._routes if not is_local(route.base_url)]
        if not settings.enabled or not remote:
            return []
        providers = sorted({route.provider for route in remote})
        declared = await asyncio.gather(*map(self._pool_store.declared, providers))
        added = {
            provider: [key.key for key in one.added]
            for provider, one in zip(providers, declared, strict=True)
        }
        places = {
            (label_of(route), key)
            for route in remote
            for key in self._fingerprints(
                route, added[route.provider] if route.takes_account_keys else ()
            )
        }
        return [account_gate(label, key, settings) for label, key in sorted(places)]

    def _fingerprints(self, route: Route, added: Sequence[str]) -> list[str]:
        if self._secret.key is None:
            raise StateUnavailable
        own = [key.secret for key in route.api_keys]
        secrets = own if own or added else [""]
        return [*(upstream_key_id(self._secret.key, one) for one in secrets), *added]

    def _engines(self, overrides: Mapping[str, Overrides]) -> list[Gate]:
        """By address; of several limits the last to come counts, and that is what the store has."""
        found: dict[str, Gate] = {}
        for model in self._config.models.values():
            offload = policy_of(model, overrides[model.id])
            if offload and offload.engine_queue_limit:
                for route in model.routes:
                    if is_local(route.base_url):
                        limit = offload.engine_queue_limit
                        gate = engine_gate(route, limit, self._config.host_id)
                        found.setdefault(gate.tag, gate)
        return [found[tag] for tag in sorted(found)]
