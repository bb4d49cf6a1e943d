"""Run a replica under uvicorn, from listening sockets to an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Generator

import uvicorn

from gateway.admission.claims import new_replica_id
from gateway.api.wire import BoundedHttp
from gateway.app import Replica
from gateway.config.live import Source
from gateway.config.result import Config
from gateway.telemetry import logs

LAST_WORDS_S = 1.0
"""How long clients may take to hear that the replica goes, before it hangs up."""


def serve(
    config: Config, source: Source, sockets: list[socket.socket], drain_delay_s: float
) -> None:
    """Serve on listening sockets until a signal says stop. Raises `ValueError` for a bad URL."""
    replica_id = new_replica_id()
    logs.configure(replica_id)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(config, source, replica_id, sockets, drain_delay_s))


async def _serve(
    config: Config,
    source: Source,
    replica_id: str,
    sockets: list[socket.socket],
    drain_delay_s: float,
) -> None:
    replica = Replica(config, source, replica_id)
    server = Server(
        uvicorn.Config(
            replica.app,
            http=BoundedHttp,
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
        ),
        replica,
        drain_delay_s,
    )
    await server.serve(sockets=sockets)


class Server(uvicorn.Server):
    """uvicorn, with a stop in the order that load balancers need.

    On SIGTERM or SIGINT `/readyz` says no at once; new requests are still taken for the drain
    delay, since nobody learns of it at once; then open ones may end until the drain timeout, and
    the rest is told, and cut off if it does not listen. A second signal does not wait. SIGHUP reads
    the configuration anew.
    """

    def __init__(self, config: uvicorn.Config, replica: Replica, drain_delay_s: float) -> None:
        super().__init__(config)
        self._replica = replica
        self._drain_delay_s = drain_delay_s
        self._stopping: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[object] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals in the event loop instead of uvicorn's way, which kills itself after."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            yield
        finally:
            if self._stopping:
                self._stopping.cancel()

    def _reload(self) -> None:
        self._reloading = asyncio.ensure_future(self._replica.reload())

    def _stop(self) -> None:
        if self._stopping:
            self._stopping.cancel()
            self._stopping = asyncio.ensure_future(self._cut_off())
        else:
            self._stopping = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        self._replica.lifecycle.is_draining = True
        await asyncio.sleep(self._drain_delay_s)
        self.should_exit = True
        await asyncio.sleep(self._replica.config.settings.server.drain_timeout_s)
        await self._cut_off()

    async def _cut_off(self) -> None:
        """End what still runs; then hang up on clients that neither send nor read."""
        self.should_exit = True
        self._replica.lifecycle.cut_off()
        await asyncio.sleep(LAST_WORDS_S)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()
