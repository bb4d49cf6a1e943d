"""The state of the whole cluster, as Redis tells it to any replica or command that asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from urllib.parse import unquote

from msgspec import Struct, structs

from gateway.admin.rows import Row, read_row, warnings_of
from gateway.config.result import Config
from gateway.core.route import Model
from gateway.routing.weights import weigh
from gateway.state.store import Store

OLDEST = (6, 2)
"""The oldest Redis that is tested with."""
FULL = 0.9
"""The part of its memory above which a store is about to refuse work."""


class Server(Protocol):
    """A store that tells of itself."""

    async def info(self) -> Mapping[str, str]:
        """What INFO says, empty where the server does not tell. Raises `StateUnavailable`."""
        ...


class EndpointStatus(Row, frozen=True, kw_only=True):
    """An endpoint, as all replicas see it."""

    model: str
    location: str
    provider: str
    weight: float
    """In force."""
    reasons: Sequence[str]
    """What changed that weight, or keeps it 0."""


class ReplicaStatus(Struct, frozen=True, kw_only=True):
    """A replica that has said lately that it lives."""

    id: str
    host: str
    seen_ms: int
    """When, by the clock of Redis."""
    silent_ms: int
    """How long ago that is."""
    config_digest: str
    version: str
    secret_mark: str
    """The same on replicas that know callers by the same names; empty where that is not told."""


class RedisStatus(Struct, frozen=True, kw_only=True):
    """The store; `None` is what it does not tell."""

    version: str | None
    policy: str | None
    """What it does when it is full: `maxmemory-policy`."""
    persistence: str | None
    """`aof`, or `no aof`."""
    memory_bytes: int | None
    max_memory_bytes: int | None
    """`None` also where there is no limit."""


class Status(Struct, frozen=True, kw_only=True):
    """Everything at once."""

    config_digest: str
    """Of whoever answers."""
    endpoints: Mapping[str, EndpointStatus]
    claims: Mapping[str, int]
    """Model to claims that stand."""
    gates: Sequence[str]
    """None yet."""
    replicas: Sequence[ReplicaStatus]
    coordinator: str | None
    """None yet."""
    redis: RedisStatus
    warnings: Sequence[str]


class StatusReader:
    """Reads the status under one configuration."""

    def __init__(self, config: Config, store: Store, server: Server) -> None:
        self._config = config
        self._store = store
        self._server = server

    async def read(self) -> Status:
        """Read it all. Raises `StateUnavailable`."""
        models = list(self._config.models.values())
        looks = await asyncio.gather(*map(self._look, models))
        info, (replicas, silent) = await asyncio.gather(self._server.info(), self._replicas())
        endpoints: dict[str, EndpointStatus] = {}
        for of_model, _, _ in looks:
            endpoints.update(of_model)
        return Status(
            config_digest=self._config.digest,
            endpoints=endpoints,
            claims={model.id: claims for model, (_, claims, _) in zip(models, looks, strict=True)},
            gates=(),
            replicas=replicas,
            coordinator=None,
            redis=_redis(info),
            warnings=[
                *_warn_of_redis(info),
                *_warn_of_configs(replicas, self._config.digest),
                *_warn_of_secrets(replicas),
                *(f"replica {one.id} on {one.host} has fallen silent" for one in silent),
                *(warning for _, _, warnings in looks for warning in warnings),
            ],
        )

    async def _look(self, model: Model) -> tuple[dict[str, EndpointStatus], int, list[str]]:
        overrides, (claims, rows) = await asyncio.gather(
            self._store.overrides(model.id), self._store.rows(model.id)
        )
        found: dict[str, EndpointStatus] = {}
        for one in weigh(model, overrides):
            route = one.route
            row = read_row(rows.get(route.location, {}))
            found[route.endpoint] = EndpointStatus(
                model=model.id,
                location=route.location,
                provider=route.provider,
                weight=one.weight,
                reasons=[str(reason) for reason in one.reasons],
                **structs.asdict(row),
            )
        return found, claims, warnings_of(model.id, rows.get("", {}))

    async def _replicas(self) -> tuple[list[ReplicaStatus], list[ReplicaStatus]]:
        """Those that live, and those that have stopped saying so without taking leave."""
        reply = await self._store.replicas()
        pairs = zip(reply.fields[::2], reply.fields[1::2], strict=True)
        known = sorted(
            (_replica(id, about, reply.now_ms) for id, about in pairs),
            key=lambda one: (one.host, one.id),
        )
        ttl_ms = self._config.settings.state.replica_ttl_s * 1000
        live = [one for one in known if one.silent_ms < ttl_ms]
        return live, [one for one in known if one not in live]


def _replica(id: str, about: str, now_ms: int) -> ReplicaStatus:
    words = dict(word.split("=", 1) for word in about.split() if "=" in word)
    seen_ms = _whole(words.get("seen_ms")) or 0
    return ReplicaStatus(
        id=id,
        host=unquote(words.get("host", "")),
        seen_ms=seen_ms,
        silent_ms=abs(now_ms - seen_ms),
        config_digest=words.get("config", ""),
        version=words.get("version", ""),
        secret_mark=words.get("secret", ""),
    )


def _redis(info: Mapping[str, str]) -> RedisStatus:
    persistence = {"1": "aof", "0": "no aof"}.get(info.get("aof_enabled", ""))
    return RedisStatus(
        version=info.get("redis_version"),
        policy=info.get("maxmemory_policy"),
        persistence=persistence,
        memory_bytes=_whole(info.get("used_memory")),
        max_memory_bytes=_whole(info.get("maxmemory")) or None,
    )


def _warn_of_redis(info: Mapping[str, str]) -> list[str]:
    warnings: list[str] = []
    redis = _redis(info)
    if redis.version and _version(redis.version) < OLDEST:
        warnings.append(f"Redis {redis.version} is older than 6.2")
    if redis.policy and redis.policy != "noeviction":
        warnings.append(
            f"maxmemory-policy is {redis.policy}: state may vanish without an error; "
            "it must be noeviction"
        )
    if redis.max_memory_bytes and (redis.memory_bytes or 0) > FULL * redis.max_memory_bytes:
        warnings.append(f"Redis uses more than {FULL:.0%} of its maxmemory")
    for name, what in (("rdb_last_bgsave_status", "snapshot"), ("aof_last_write_status", "AOF")):
        if info.get(name, "ok") != "ok":
            warnings.append(f"the last {what} of Redis failed: it may refuse writes")
    return warnings


def _warn_of_configs(replicas: Sequence[ReplicaStatus], own: str) -> list[str]:
    if not replicas:
        return ["no replica has said lately that it lives"]
    by_digest = _ids_by((one.config_digest, one.id) for one in replicas)
    if len(by_digest) > 1:
        return [f"configurations differ: {_listed(by_digest)}"]
    if own not in by_digest:
        return [f"the configuration read here, {own}, is not the replicas', {', '.join(by_digest)}"]
    return []


def _warn_of_secrets(replicas: Sequence[ReplicaStatus]) -> list[str]:
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


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
