"""Health for machines and operators: `/livez`, `/readyz`, `/health`, `/health/deep`, `/routing`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.admin import door
from gateway.admin.rows import read_row
from gateway.api.lifecycle import Lifecycle
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.core.overrides import Overrides
from gateway.core.route import Model
from gateway.errors import StateUnavailable
from gateway.routing.weights import RouteShare, exclusions
from gateway.state.store import Store

Rows = Mapping[str, Mapping[str, str]]
"""Of one model: location -> what -> text."""
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
        """Circuits and availability of every endpoint, as all replicas see them.

        Routes out of service are listed, but are nobody's failure. While Redis is away only what
        the files say is known of them.
        """
        await door.admin(request, self._authenticator)
        models = list(self._config.models.values())
        try:
            rows, overrides = await self._read(models)
        except StateUnavailable:
            rows, overrides = None, [Overrides()] * len(models)
        excluded = [
            one
            for model, of_model in zip(models, overrides, strict=True)
            for one in exclusions(model, of_model)
        ]
        providers = _providers(models, rows, excluded) if rows is not None else {}
        is_healthy = rows is not None and not any(map(_is_degraded, providers.values()))
        return JSONResponse(
            {
                "status": "healthy" if is_healthy else "degraded",
                "routes_configured": self._count_routes(),
                "state_available": rows is not None,
                "providers": providers,
                "route_exclusions": [structs.asdict(one) for one in excluded],
            }
        )

    async def routing(self, request: Request) -> JSONResponse:
        """Which routes each model has and with what share."""
        await door.admin(request, self._authenticator)
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
            }
        )

    async def _read(self, models: Sequence[Model]) -> tuple[Sequence[Rows], list[Overrides]]:
        """Rows and overrides of each model."""
        ids = [model.id for model in models]
        looks, overrides = await asyncio.gather(
            asyncio.gather(*map(self._store.rows, ids)),
            asyncio.gather(*map(self._store.overrides, ids)),
        )
        return [rows for _, rows in looks], overrides

    def _count_routes(self) -> int:
        return sum(len(model.routes) for model in self._config.models.values())


def _providers(
    models: Iterable[Model],
    rows: Iterable[Rows],
    excluded: Iterable[RouteShare],
) -> dict[str, dict[str, Any]]:
    found = {
        route.endpoint: _endpoint(of_model.get(route.location, {}))
        for model, of_model in zip(models, rows, strict=True)
        for route in model.routes
    }
    for one in excluded:
        found[one.endpoint_id]["excluded_from_models"] = [one.model_id]
        found[one.endpoint_id]["exclusion_reasons"] = sorted(one.reasons)
    return found


def _endpoint(fields: Mapping[str, str]) -> dict[str, Any]:
    row = read_row(fields)
    return {
        "availability": row.availability,
        "circuit_state": row.circuit,
        "last_error_status": row.last_status,
        "consecutive_auth_rejections": row.auth_rejections,
        "inflight": row.inflight,
        "unreachable_from": row.unreachable_from,
    }


def _is_degraded(endpoint: dict[str, Any]) -> bool:
    return bool(
        endpoint["circuit_state"] == "open"
        or endpoint["availability"] < DEGRADED_BELOW
        or endpoint["consecutive_auth_rejections"] > 0
    )


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
