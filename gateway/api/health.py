"""Health for machines and operators: `/livez`, `/readyz`, `/health`, `/health/deep`, `/routing`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from gateway.api.lifecycle import Lifecycle
from gateway.api.request import headers_of, peer_of
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.core.route import Model
from gateway.errors import PermissionDenied, StateUnavailable
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
        self._authenticator = authenticator
        self._lifecycle = lifecycle
        self._state_is_available = state_is_available

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
        """Circuits and availability of every endpoint, as all replicas see them."""
        self._require_admin(request)
        try:
            providers = await self._providers()
        except StateUnavailable:
            providers = None
        is_healthy = providers is not None and not any(map(_is_degraded, providers.values()))
        return JSONResponse(
            {
                "status": "healthy" if is_healthy else "degraded",
                "routes_configured": self._count_routes(),
                "state_available": providers is not None,
                "providers": providers or {},
                "route_exclusions": self._exclusions(),
            }
        )

    async def routing(self, request: Request) -> JSONResponse:
        """Which routes each model has and with what share."""
        self._require_admin(request)
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

    def _require_admin(self, request: Request) -> None:
        caller = self._authenticator.caller(headers_of(request.scope), peer_of(request.scope))
        if not caller.is_admin:
            raise PermissionDenied("This needs an admin key.")

    async def _providers(self) -> dict[str, dict[str, Any]]:
        models = list(self._config.models.values())
        rows = await asyncio.gather(*(self._store.rows(model.id) for model in models))
        return {
            route.endpoint: _endpoint(row.get(route.location, {}))
            for model, row in zip(models, rows, strict=True)
            for route in model.routes
        }

    def _exclusions(self) -> list[dict[str, Any]]:
        return [
            {
                "model_id": model.id,
                "endpoint_id": route.endpoint,
                "provider": route.provider,
                "base_url": route.base_url,
                "configured_weight": 0.0,
                "effective_weight": 0.0,
                "reasons": ["configured_zero"],
            }
            for model in self._config.models.values()
            for route in model.routes
            if route.weight == 0
        ]

    def _count_routes(self) -> int:
        return sum(len(model.routes) for model in self._config.models.values())


def _endpoint(row: dict[str, str]) -> dict[str, Any]:
    last_status = row.get("last_status")
    return {
        "availability": round(_number(row.get("availability"), 1.0), 4),
        "circuit_state": row.get("circuit", "closed"),
        "last_error_status": int(_number(last_status, 0)) if last_status else None,
        "consecutive_auth_rejections": int(_number(row.get("auth_rejections"), 0)),
        "inflight": int(_number(row.get("inflight"), 0)),
        "unreachable_from": _unreachable_from(row.get("conn", "")),
    }


def _unreachable_from(notes: str) -> dict[str, int]:
    """Replica to connect failures that no other replica has confirmed (`lua/lib/conn.lua`)."""
    words = (word.split(":") for word in notes.split())
    counts = {word[0]: int(_number(word[1], 0)) for word in words if len(word) == 3}
    return {replica: count for replica, count in counts.items() if count > 0}


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


def _number(text: str | None, default: float) -> float:
    """A field as a number; what an operator has mistyped counts as unset, as it does in Lua."""
    try:
        number = float(text) if text is not None else default
    except ValueError:
        return default
    return number if math.isfinite(number) else default
