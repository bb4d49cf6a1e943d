"""The part of the surface about offload routes, and about the gates that lead to them."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from gateway.admin import door, targets
from gateway.admin.gates import Concurrency, GateReader
from gateway.admin.offload import (
    AllOffloads,
    DaysQuery,
    ModelOffload,
    OffloadRoutes,
    RecentOffloads,
)
from gateway.admin.serving import Surface
from gateway.auth.keys import Authenticator
from gateway.config.offload_schema import OffloadEntry
from gateway.config.result import Config
from gateway.core.caller import Caller

OFFLOADS = "/admin/routing/offload-routes"


class OffloadSurface(Surface):
    """Serves it under one configuration."""

    def __init__(
        self,
        config: Config,
        authenticator: Authenticator,
        offloads: OffloadRoutes,
        gates: GateReader,
    ) -> None:
        super().__init__(authenticator)
        self._config = config
        self._offloads = offloads
        self._gates = gates

    def routes(self) -> list[Route]:
        """Where all this is served."""
        return [
            self._route(OFFLOADS, GET=self.offloads),
            self._route(
                f"{OFFLOADS}/{{model:path}}",
                GET=self.offload_of,
                PUT=self.set_offload,
                DELETE=self.drop_offload,
            ),
            self._route("/admin/recent-requests/offloads", GET=self.recent_offloads),
            self._route("/admin/upstream-concurrency", GET=self.concurrency),
        ]

    async def offloads(self, request: Request, caller: Caller) -> AllOffloads:
        """Every offload policy."""
        return await self._offloads.all()

    async def offload_of(self, request: Request, caller: Caller) -> ModelOffload:
        """One model's."""
        model = targets.model_of(self._config, request.path_params["model"])
        return await self._offloads.of(model)

    async def set_offload(self, request: Request, caller: Caller) -> ModelOffload:
        """Set one."""
        model = targets.model_of(self._config, request.path_params["model"])
        asked = await door.read_json(request, OffloadEntry)
        fields = {"model": model.id, **msgspec.structs.asdict(asked)}
        with self._noted_when_unsure("offload_route_set", caller, **fields):
            found = await self._offloads.set(model, asked, by=caller.id)
        self._note("offload_route_set", caller, **fields)
        return found

    async def drop_offload(self, request: Request, caller: Caller) -> ModelOffload:
        """Let the configured policy hold again; also of a model that is gone."""
        model_id = request.path_params["model"]
        if model_id in self._config.names:
            targets.model_of(self._config, model_id)  # raises for an alias, which has none
        with self._noted_when_unsure("offload_route_dropped", caller, model=model_id):
            found = await self._offloads.drop(model_id)
        self._note("offload_route_dropped", caller, model=model_id)
        return found

    async def recent_offloads(self, request: Request, caller: Caller) -> RecentOffloads:
        """The last requests that went to an offload route."""
        query = door.read_query(dict(request.query_params), DaysQuery)
        return await self._offloads.recent(query)

    async def concurrency(self, request: Request, caller: Caller) -> Concurrency:
        """The gates of upstream accounts."""
        return await self._gates.concurrency()
