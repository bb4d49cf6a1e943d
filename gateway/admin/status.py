"""The state of the whole cluster, as Redis tells it to any replica or command that asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

from msgspec import Struct, structs

from gateway.admin.calibration import calibrations
from gateway.admin.gates import GateReader, GateStatus
from gateway.admin.rows import Row, row_of, warnings_of
from gateway.admin.void_keys import warn_of_void_keys
from gateway.admission.secret import Secret
from gateway.config.result import Config
from gateway.core.overrides import Overrides
from gateway.core.route import Model
from gateway.routing.weights import weigh
from gateway.state.coordination import Coordination
from gateway.state.heartbeats import Heartbeat, read_heartbeats
from gateway.state.look import Look, Server, look_at
from gateway.state.policy import Policy
from gateway.state.pool_store import PoolStore
from gateway.state.standing import Retries
from gateway.state.store import Store


class EndpointStatus(Row, frozen=True, kw_only=True):
    """An endpoint, as all replicas see it."""

    model: str
    location: str
    provider: str
    weight: float
    """In force."""
    reasons: Sequence[str]
    """What changed that weight, or keeps it 0."""


class CoordinatorStatus(Struct, frozen=True, kw_only=True):
    """Who coordinates the cluster, or did last."""

    holder: str
    epoch: int
    """Rises with every new holder."""
    expires_ms: int
    """When its lease ends, by the clock of Redis."""
    left_ms: int
    """How far away that is; 0 when nobody leads."""
    host: str
    version: str
    config_digest: str
    published: Mapping[str, int]
    """What it has published -> how old that is, in ms."""


class Status(Struct, frozen=True, kw_only=True):
    """Everything at once."""

    config_digest: str
    """Of whoever answers."""
    endpoints: Mapping[str, EndpointStatus]
    claims: Mapping[str, int]
    """Model to claims that stand."""
    retry_budgets: Mapping[str, Retries]
    """Of models that can fail over."""
    gates: Sequence[GateStatus]
    replicas: Sequence[Heartbeat]
    coordinator: CoordinatorStatus | None
    """`None` when there has never been one."""
    redis: Look
    warnings: Sequence[str]


class _ModelStatus(Struct, frozen=True, kw_only=True):
    id: str
    endpoints: Mapping[str, EndpointStatus]
    overrides: Overrides
    claims: int
    retries: Retries | None
    warnings: Sequence[str]


class StatusReader:
    """Reads the status under one configuration."""

    def __init__(
        self,
        config: Config,
        store: Store,
        server: Server,
        gates: GateReader,
        *,
        pool_store: PoolStore,
        secret: Secret,
    ) -> None:
        self._config = config
        self._pool_store = pool_store
        self._secret = secret
        self._gates = gates
        self._store = store
        self._server = server
        self._policy = Policy.of(config.settings)

    async def read(self) -> Status:
        """Read it all. Raises `StateUnavailable`."""
        models = await asyncio.gather(*map(self._of_model, self._config.models.values()))
        look, (replicas, silent), coordination = await asyncio.gather(
            look_at(self._server), self._replicas(), self._store.coordinator()
        )
        learned = await calibrations(self._config, self._store)
        void = await warn_of_void_keys(self._config, self._pool_store, self._secret, replicas)
        return Status(
            config_digest=self._config.digest,
            endpoints={id: found for one in models for id, found in one.endpoints.items()},
            claims={one.id: one.claims for one in models},
            retry_budgets={one.id: one.retries for one in models if one.retries},
            gates=await self._gates.all({one.id: one.overrides for one in models}),
            replicas=replicas,
            coordinator=_coordinator(coordination),
            redis=look,
            warnings=[
                *look.warnings(),
                *_warn_of_coordinator(coordination, self._config),
                *_warn_of_configs(replicas, self._config.digest),
                *_warn_of_secrets(replicas),
                *void,
                *(f"replica {one.id} on {one.host} has fallen silent" for one in silent),
                *(warning for one in models for warning in one.warnings),
                *(warning for one in learned for warning in one.warnings()),
            ],
        )

    async def _of_model(self, model: Model) -> _ModelStatus:
        overrides, (claims, standing) = await asyncio.gather(
            self._store.overrides(model.id),
            self._store.rows(model.id, policy=self._policy, limited=model.limited),
        )
        endpoints = {
            one.route.endpoint: EndpointStatus(
                model=model.id,
                location=one.route.location,
                provider=one.route.provider,
                weight=one.weight,
                reasons=[str(reason) for reason in one.reasons],
                **structs.asdict(row_of(one.route, standing)),
            )
            for one in weigh(model, overrides)
        }
        return _ModelStatus(
            id=model.id,
            endpoints=endpoints,
            overrides=overrides,
            claims=claims,
            retries=standing.retries if len(endpoints) > 1 else None,
            warnings=warnings_of(model.id, standing.rows.get("", {})),
        )

    async def _replicas(self) -> tuple[list[Heartbeat], list[Heartbeat]]:
        """Those that live, and those that have fallen silent."""
        ttl_ms = self._config.settings.state.replica_ttl_s * 1000
        return read_heartbeats(await self._store.replicas(), ttl_ms=ttl_ms)


def _coordinator(found: Coordination) -> CoordinatorStatus | None:
    if not found.holder:
        return None
    return CoordinatorStatus(
        holder=found.holder,
        epoch=found.epoch,
        expires_ms=found.until_ms,
        left_ms=max(found.until_ms - found.now_ms, 0),
        host=unquote(found.about.get("host", "")),
        version=found.about.get("version", ""),
        config_digest=found.about.get("config", ""),
        published=found.ages_ms(),
    )


def _warn_of_coordinator(found: Coordination, config: Config) -> list[str]:
    """Nobody needs a coordinator but for what it is asked to do."""
    if found.is_led:
        digest = found.about.get("config", "")
        if digest != config.digest:
            return [f"the coordinator's configuration, {digest}, is not the one read here"]
        return []
    if found.holder:
        return [f"no coordinator: {found.holder}, the last one, has ended or fallen silent"]
    settings = config.settings
    asks = settings.health_check > 0 and bool(settings.local_deployment)
    asks |= any(route.recovery_probes for one in config.models.values() for route in one.routes)
    return ["no coordinator has run yet, and the configuration asks for probes"] if asks else []


def _warn_of_configs(replicas: Sequence[Heartbeat], own: str) -> list[str]:
    if not replicas:
        return ["no replica has said lately that it lives"]
    by_digest = _ids_by((one.config_digest, one.id) for one in replicas)
    if len(by_digest) > 1:
        return [f"configurations differ: {_listed(by_digest)}"]
    if own not in by_digest:
        return [f"the configuration read here, {own}, is not the replicas', {', '.join(by_digest)}"]
    return []


def _warn_of_secrets(replicas: Sequence[Heartbeat]) -> list[str]:
    by_mark = _ids_by((one.secret_mark, one.id) for one in replicas if one.secret_mark)
    if len(by_mark) < 2:
        return []
    return [
        f"CONCORD_SECRET differs ({_listed(by_mark)}): replicas know callers by different names, "
        "so that conversations move between endpoints"
    ]


def _ids_by(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for what, id in pairs:
        found.setdefault(what, []).append(id)
    return found


def _listed(ids_by: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{what} on {', '.join(ids)}" for what, ids in ids_by.items())
