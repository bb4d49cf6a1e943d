"""The engine as a Starlette app: chat completions, models, health and the control surface.

`GET /control` reads the counts and the last request, `POST /control` sets a fault and
`DELETE /control` clears it, with `?counters=1` the counts too.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.engine.chat import Chat
from gateway.engine.faults import BadControl, Faults
from gateway.engine.generate import error
from gateway.engine.load import Load
from gateway.engine.settings import EngineSettings


def engine_app(settings: EngineSettings) -> Starlette:
    """Build an engine with its own slots, counts and faults."""
    load, faults = Load(settings.slots), Faults()
    chat = Chat(settings, load, faults)

    async def show(_: Request) -> JSONResponse:
        return JSONResponse(_state(load, faults, chat))

    async def set_fault(request: Request) -> JSONResponse:
        try:
            faults.set(await request.body())
        except BadControl as problem:
            return JSONResponse(error(str(problem)), 400)
        return JSONResponse(_state(load, faults, chat))

    async def clear(request: Request) -> JSONResponse:
        faults.clear()
        if request.query_params.get("counters") == "1":
            load.reset()
            chat.last = None
        return JSONResponse(_state(load, faults, chat))

    async def models(_: Request) -> JSONResponse:
        model = {"id": settings.name, "object": "model", "created": 0, "owned_by": "concord"}
        return JSONResponse({"object": "list", "data": [model]})

    async def health(_: Request) -> JSONResponse:
        load.health_checks += 1
        fault = faults.take(of_health=True)
        if fault is not None and fault.health_status is not None:
            return JSONResponse({"status": "ill"}, fault.health_status)
        return JSONResponse({"status": "ok"})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/control", show),
            Route("/control", set_fault, methods=["POST"]),
            Route("/control", clear, methods=["DELETE"]),
        ],
        exception_handlers={HTTPException: _http_error},
    )


def _state(load: Load, faults: Faults, chat: Chat) -> dict[str, Any]:
    return {
        "requests": load.requests,
        "active": load.active,
        "max_active": load.max_active,
        "waiting": load.waiting,
        "cancelled": load.cancelled,
        "health_checks": load.health_checks,
        "fault": _shown(faults),
        "last": _last(chat),
    }


def _shown(faults: Faults) -> Any:
    if faults.current is None:
        return None
    kept = msgspec.to_builtins(faults.current)
    return {name: value for name, value in kept.items() if value not in (None, False)}


def _last(chat: Chat) -> dict[str, Any] | None:
    if chat.last is None:
        return None
    try:
        body = msgspec.json.decode(chat.last.body)
    except msgspec.DecodeError:
        body = chat.last.body.decode("utf-8", "replace")
    return {"body": body, "headers": chat.last.headers}


async def _http_error(_: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, HTTPException)
    return JSONResponse(error(problem.detail), problem.status_code, headers=problem.headers)
