"""Small values for tests: say what matters, and leave the rest to defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from gateway.config.result import Config, KeyRecord
from gateway.config.schema import Server, Settings
from gateway.core.plan import Candidates, Plan
from gateway.core.reasons import Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Model, Route
from gateway.protocols.openai_chat import read_request


def route(location: str = "a", **values: Any) -> Route:
    """A route of model `m`; its provider and its host are named after the location."""
    usual: dict[str, Any] = {
        "model_id": "m",
        "provider": location,
        "kind": "vllm",
        "base_url": f"http://{location}.invalid/v1",
        "upstream_model": "theirs",
        "configured_weight": values.get("weight", 1.0),
    }
    return Route(location=location, **{**usual, **values})


def model(*routes: Route, **values: Any) -> Model:
    """The model `m`, on route `a` unless told otherwise."""
    return Model(**{"id": "m", "name": "M", "routes": routes or (route(),), **values})


def plan(*routes: Route, dropped: Mapping[str, Reason] | None = None, **values: Any) -> Plan:
    """A plan with these candidates."""
    kept = [(route, route.weight) for route in routes]
    candidates = Candidates.of(0, kept, dropped or {})
    return Plan(model=model(*routes), candidates=candidates, **values)


def chat(content: Any = "hi", **fields: Any) -> ChatRequest:
    """A parsed request for model `m`."""
    return read_request(body(content, **fields))


def body(content: Any = "hi", **fields: Any) -> bytes:
    """A request for model `m` as a client sends it."""
    messages = [{"role": "user", "content": content}]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def key(secret: str, id: str, **values: Any) -> KeyRecord:
    """A caller's key."""
    return KeyRecord(id=id, key_sha256=sha256(secret.encode()).hexdigest(), **values)


def config(
    *models: Model,
    keys: Sequence[KeyRecord] | None = None,
    admin_key: str | None = None,
    server: Server | None = None,
    **settings: Any,
) -> Config:
    """A configuration with model `m` unless told otherwise."""
    models = models or (model(),)
    return Config(
        models={one.id: one for one in models},
        names={name: one.id for one in models for name in (one.id, *one.aliases)},
        settings=Settings(server=server or Server(), **settings),
        keys=None if keys is None else tuple(keys),
        admin_key_sha256=sha256(admin_key.encode()).hexdigest() if admin_key else None,
        digest="digest",
    )
