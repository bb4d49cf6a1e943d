"""Health for machines and operators: `/livez`, `/readyz`, `/health`, `/health/deep`, `/routing`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs, to_builtins
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.admin import door
from gateway.admin.calibration import calibrations
from gateway.admin.rows import Row, row_of
from gateway.api.lifecycle import Lifecycle
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.core.overrides import Overrides
from gateway.core.route import Model
from gateway.errors import StateUnavailable
from gateway.routing.weights import RouteShare, exclusions
from gateway.state.policy import Policy
from gateway.state.store import Store

DEGRADED_BELOW = 0.9
"""Availability under which an endpoint makes the deployment count as degraded."""


class Health:
    """Probes are open to all; what tells of the topology is for admins."""

    def __init__(
        self,
        config: Config,
        store: Store,
        authenticator: Authenticator,
        lifecycle: Lifecycle,
        *,
        state_is_available: Callable[[], bool],
    ) -> None:
        self._config = config
        self._store = store
        self._policy = Policy.of(config.settings)
        self._authenticator = authenticator
        self._lifecycle = lifecycle
        self._state_is_available = state_is_available

    def routes(self) -> list[Route]:
        """Where all this is served."""
        return [
            Route("/livez", self.live),
            Route("/health/liveliness", self.live),
            Route("/readyz", self.ready),
            Route("/health/ready", self.ready),
            Route("/health/readiness", self.ready),
            Route("/health", self.summary),
            Route("/health/deep", self.deep),
            Route("/routing", self.routing),
        ]

    async def live(self, request: Request) -> JSONResponse:
        """The process runs; no dependency is asked."""
        return JSONResponse({"status": "alive"})

    async def ready(self, request: Request) -> JSONResponse:
        """Whether a load balancer should send requests here.

        Redis away is `degraded` but 200: all replicas share it, and were all unready the load
        balancer would answer in our stead.
        """
        if self._lifecycle.is_draining or not self._lifecycle.is_started:
            status = "draining" if self._lifecycle.is_draining else "starting"
            return JSONResponse({"status": status}, status_code=503)
        status = "ready" if self._state_is_available() else "degraded"
        return JSONResponse({"status": status, "config_digest": self._config.digest})

    async def summary(self, request: Request) -> JSONResponse:
        """A short look for people and monitors."""
        return JSONResponse(
            {
                "status": "healthy" if self._state_is_available() else "degraded",
                "routes_configured": self._count_routes(),
            }
        )

    async def deep(self, request: Request) -> JSONResponse:
        """Circuits, pauses and limits of every endpoint, as all replicas see them.

        Routes out of service are listed, but are nobody's failure; health probes are told beside
        it. While Redis is away only what the files say is known of them.
        """
        await door.admin(request, self._authenticator)
        models = list(self._config.models.values())
        try:
            rows, overrides = await self._read(models)
            probed = await self._endpoint_health()
            learned = await calibrations(self._config, self._store)
        except StateUnavailable:
            rows, overrides, probed, learned = None, [Overrides()] * len(models), {}, []
        excluded = [
            one
            for model, of_model in zip(models, overrides, strict=True)
            for one in exclusions(model, of_model)
        ]
        providers = _providers(rows, excluded) if rows is not None else {}
        is_healthy = rows is not None and not any(map(_is_degraded, rows.values()))
        return JSONResponse(
            {
                "status": "healthy" if is_healthy else "degraded",
                "routes_configured": self._count_routes(),
                "state_available": rows is not None,
                "providers": providers,
                "endpoint_health": probed,
                "calibration": to_builtins(learned),
                "route_exclusions": [structs.asdict(one) for one in excluded],
            }
        )

    async def routing(self, request: Request) -> JSONResponse:
        """Which routes each model has and with what share, and what holds their endpoints back.

        Of the latter nothing is known while Redis is away.
        """
        await door.admin(request, self._authenticator)
        models = list(self._config.models.values())
        try:
            rows = await self._rows(models)
            probed = await self._endpoint_health()
        except StateUnavailable:
            rows, probed = {}, {}
        settings = self._config.settings
        routes = {
            name: _shares(self._config.models[model_id])
            for name, model_id in self._config.names.items()
            if model_id in self._config.models
        }
        return JSONResponse(
            {
                "routes": routes,
                "description": "Configured share of each route by model or alias.",
                "manager_status": {
                    "loaded": True,
                    "strategy": settings.default_router,
                    "health_check_interval": settings.health_check,
                    "timeout": settings.timeout,
                    "deployments": {
                        "local": len(settings.local_deployment),
                        "remote": len(settings.remote_deployment),
                    },
                },
                "endpoints": {endpoint: _held_back(row) for endpoint, row in rows.items()},
                "endpoint_health": probed,
            }
        )

    async def _read(self, models: Sequence[Model]) -> tuple[dict[str, Row], list[Overrides]]:
        """The row of each endpoint, and the overrides of each model."""
        ids = [model.id for model in models]
        return await asyncio.gather(
            self._rows(models), asyncio.gather(*map(self._store.overrides, ids))
        )

    async def _rows(self, models: Sequence[Model]) -> dict[str, Row]:
        async def rows_of(model: Model) -> dict[str, Row]:
            policy, limited = self._policy, model.limited
            _, standing = await self._store.rows(model.id, policy=policy, limited=limited)
            return {route.endpoint: row_of(route, standing) for route in model.routes}

        found: dict[str, Row] = {}
        for rows in await asyncio.gather(*map(rows_of, models)):
            found |= rows
        return found

    async def _endpoint_health(self) -> dict[str, dict[str, Any]]:
        """Address of a deployment -> what its last health probe has found, and how long ago."""
        found = (await self._store.coordinator()).probes()
        return {address: structs.asdict(result) for address, result in sorted(found.items())}

    def _count_routes(self) -> int:
        return sum(len(model.routes) for model in self._config.models.values())


def _providers(
    rows: Mapping[str, Row], excluded: Iterable[RouteShare]
) -> dict[str, dict[str, Any]]:
    found = {endpoint: _endpoint(row) for endpoint, row in rows.items()}
    for one in excluded:
        found[one.endpoint_id]["excluded_from_models"] = [one.model_id]
        found[one.endpoint_id]["exclusion_reasons"] = sorted(one.reasons)
    return found


def _endpoint(row: Row) -> dict[str, Any]:
    return {
        "availability": row.availability,
        "circuit_state": row.circuit,
        "last_error_status": row.last_status,
        "consecutive_auth_rejections": row.auth_rejections,
        "inflight": row.inflight,
        "unreachable_from": row.unreachable_from,
        **_held_back(row),
    }


def _held_back(row: Row) -> dict[str, Any]:
    """What keeps requests from an endpoint that is well."""
    return {"cooldown": to_builtins(row.cooldown), "limits": to_builtins(row.limits)}


def _is_degraded(row: Row) -> bool:
    return row.circuit == "open" or row.availability < DEGRADED_BELOW or row.auth_rejections > 0


def _shares(model: Model) -> list[dict[str, str]]:
    total = sum(route.weight for route in model.routes) or 1.0
    return [
        {
            "provider": route.provider,
            "base_url": route.base_url,
            "weight": f"{round(100 * route.weight / total)}%",
        }
        for route in model.routes
    ]
