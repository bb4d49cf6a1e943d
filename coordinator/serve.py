"""The process: `/livez` and `/readyz` on a port of its own, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from coordinator.run import Coordinator, new_holder_id
from gateway.config.live import Source
from gateway.config.result import Config, Loaded
from gateway.telemetry import logs


def serve(loaded: Loaded, config: Config, source: Source, listener: socket.socket) -> None:
    """Coordinate until a signal says stop."""
    holder = new_holder_id()
    logs.configure(holder)
    asyncio.run(_serve(loaded, config, source, holder, listener))


async def _serve(
    loaded: Loaded, config: Config, source: Source, holder: str, listener: socket.socket
) -> None:
    coordinator = Coordinator(loaded, config, source, holder)
    server = Server(
        uvicorn.Config(
            health_app(coordinator),
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=1,
        ),
        coordinator,
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(coordinator.run())
            await server.serve(sockets=[listener])
            running.cancel()
    finally:
        await coordinator.close()


class Server(uvicorn.Server):
    """uvicorn; SIGTERM and SIGINT end it, SIGHUP has the configuration read anew."""

    def __init__(self, config: uvicorn.Config, coordinator: Coordinator) -> None:
        super().__init__(config)
        self._coordinator = coordinator
        self._reloading: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals in the event loop instead of uvicorn's way, which kills itself after."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        yield

    def _stop(self) -> None:
        self.should_exit = True

    def _reload(self) -> None:
        self._reloading = asyncio.ensure_future(self._coordinator.reload())


def health_app(coordinator: Coordinator) -> Starlette:
    """What is served: whether the process runs, and what it is."""

    async def live(_: Request) -> JSONResponse:
        return JSONResponse({"status": "alive"})

    async def ready(_: Request) -> JSONResponse:
        """One that stands by is ready, too; Redis away is `degraded`, as in replicas."""
        lease = coordinator.lease
        answer: dict[str, Any] = {
            "status": "ready" if coordinator.state_is_available else "degraded",
            "role": "standby" if lease.epoch is None else "leader",
            "epoch": lease.epoch,
            "leader": lease.leader or None,
        }
        return JSONResponse(answer)

    return Starlette(routes=[Route("/livez", live), Route("/readyz", ready)])
