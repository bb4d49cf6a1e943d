"""`GET /v1/models` and `GET /v1/models/{id}`, under every path where clients look for them."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.catalog import Catalog, Entry, Page
from gateway.api.request import headers_of, peer_of
from gateway.api.responses import error_headers
from gateway.auth.addresses import Proxies
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.core.caller import Caller
from gateway.errors import GatewayError
from gateway.protocols import anthropic_error
from gateway.resolve import resolve

BY_CLIENT, ANTHROPIC = "/v1/models", "/anthropic/v1/models"
PATHS = (BY_CLIENT, "/models", "/openrouter/models", ANTHROPIC)
"""The first answers in the shape that its client reads, the last always in Anthropic's."""
MOST_CATALOGS = 1000
_ANTHROPIC_AGENTS = ("anthropic-", "claude-cli", "claude-sdk")


class Models:
    """The models that the asking caller may use. Aliases are not listed, but can be asked for."""

    def __init__(self, config: Config, authenticator: Authenticator, *, created_s: int) -> None:
        """`created_s` is listed for all models, in Unix time: when they were made is not known."""
        self._config = config
        self._authenticator = authenticator
        self._proxies = Proxies(config.settings.server.trusted_proxies)
        self._entries = {
            model.id: Entry.of(model, created_s) for model in config.models.values() if model.routes
        }
        self._catalogs: dict[tuple[str, frozenset[str] | None], Catalog] = {}
        """By what decides of a caller's models; keys can be made, so bounded."""

    def routes(self) -> list[Route]:
        """Where all this is served."""
        lists = [Route(path, self.all) for path in PATHS]
        return lists + [Route(f"{path}/{{model_id:path}}", self.one) for path in PATHS]

    async def all(self, request: Request) -> Response:
        """List."""
        headers = headers_of(request.scope)
        if not _reads_anthropic(request, headers):
            return _json(self._catalog(await self._caller(request, headers)).openai)
        try:
            catalog = self._catalog(await self._caller(request, headers))
            return _json(catalog.anthropic(Page.of(request.query_params)))
        except GatewayError as error:
            return _anthropic_error(error)

    async def one(self, request: Request) -> Response:
        """Retrieve one; its id may hold slashes."""
        headers = headers_of(request.scope)
        if not _reads_anthropic(request, headers):
            return _json((await self._entry(request, headers)).openai)
        try:
            return _json((await self._entry(request, headers)).anthropic)
        except GatewayError as error:
            return _anthropic_error(error)

    async def _entry(self, request: Request, headers: Mapping[str, str]) -> Entry:
        model = resolve(
            request.path_params["model_id"],
            await self._caller(request, headers),
            names=self._config.names,
            models=self._config.models,
        )
        return self._entries[model.id]

    async def _caller(self, request: Request, headers: Mapping[str, str]) -> Caller:
        address = self._proxies.client(peer_of(request.scope), headers.get("x-forwarded-for"))
        return await self._authenticator.caller(headers, address)

    def _catalog(self, caller: Caller) -> Catalog:
        kind = (caller.role, caller.models)
        if kind not in self._catalogs:
            if len(self._catalogs) >= MOST_CATALOGS:
                self._catalogs.clear()
            self._catalogs[kind] = Catalog(
                {
                    id: entry
                    for id, entry in self._entries.items()
                    if caller.may_use(self._config.models[id])
                }
            )
        return self._catalogs[kind]


def _reads_anthropic(request: Request, headers: Mapping[str, str]) -> bool:
    path: str = request.scope["path"]
    if not path.startswith(BY_CLIENT):
        return path.startswith(ANTHROPIC)
    agent = headers.get("user-agent", "").lower()
    return bool(headers.get("anthropic-version")) or agent.startswith(_ANTHROPIC_AGENTS)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _anthropic_error(error: GatewayError) -> Response:
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return Response(
        anthropic_error.error_body(error),
        status_code=error.status,
        headers=headers,
        media_type="application/json",
    )
