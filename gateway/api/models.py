"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from gateway.api.request import headers_of, peer_of
from gateway.auth.addresses import Proxies
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.core.caller import Caller
from gateway.core.route import Model
from gateway.resolve import resolve


class Models:
    """The models that the asking caller may use. Aliases are not listed, but can be asked for."""

    def __init__(self, config: Config, authenticator: Authenticator) -> None:
        self._config = config
        self._authenticator = authenticator
        self._proxies = Proxies(config.settings.server.trusted_proxies)
        self._created = int(time.time())

    async def all(self, request: Request) -> JSONResponse:
        """List."""
        caller = self._caller(request)
        data = [
            self._item(model)
            for model in self._config.models.values()
            if model.routes and caller.may_use(model)
        ]
        return JSONResponse({"object": "list", "data": data})

    async def one(self, request: Request) -> JSONResponse:
        """Retrieve one; its id may hold slashes."""
        model = resolve(
            request.path_params["model_id"],
            self._caller(request),
            names=self._config.names,
            models=self._config.models,
        )
        return JSONResponse(self._item(model))

    def _caller(self, request: Request) -> Caller:
        headers, peer = headers_of(request.scope), peer_of(request.scope)
        address = self._proxies.client(peer, headers.get("x-forwarded-for"))
        return self._authenticator.caller(headers, address)

    def _item(self, model: Model) -> dict[str, Any]:
        features = ["tools"] if model.supports_tools else []
        if model.supports_structured_output:
            features += ["json_mode", "structured_outputs"]
        return {
            "id": model.id,
            "object": "model",
            "name": model.name,
            "created": self._created,
            "owned_by": model.routes[0].provider,
            "input_modalities": list(model.input_modalities),
            "output_modalities": list(model.output_modalities),
            "quantization": model.quantization,
            "context_length": model.context_length,
            "max_output_length": model.max_output_length,
            "pricing": dict(model.pricing),
            "supported_sampling_parameters": sorted(model.supported_params),
            "supported_features": features,
        }
