"""`concord serve`: one replica."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Generator
from pathlib import Path

import uvicorn

from gateway.app import Replica
from gateway.auth.addresses import is_loopback
from gateway.config.load import environment, load
from gateway.config.result import Config
from gateway.telemetry import logs

BACKLOG = 2048


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("serve", help="run one replica")
    parser.add_argument("--config", type=Path, required=True, metavar="DIR")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4000)
    parser.add_argument("--redis", metavar="URL", help="default: the variable REDIS_URL")
    # What `concord up` passes to its replicas.
    parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--drain-delay", type=float, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until stopped. Returns 0 when stopped, 1 when it could not start."""
    env = environment()
    redis_url = args.redis or env.get("REDIS_URL")
    if not redis_url:
        return _refuse("serve needs --redis URL or REDIS_URL (redis://, rediss:// or unix://)")
    if not args.config.is_dir():
        print(f"concord serve: --config {args.config} is not a folder", file=sys.stderr)
        return 2
    loaded = load(args.config, env, redis_url=redis_url, serving=True)
    for problem in loaded.problems:
        print(f"concord serve: {problem}", file=sys.stderr)
    config = loaded.config
    if config is None:
        return 1
    if config.settings.auth == "keys" and config.keys is None and not is_loopback(args.host):
        return _refuse(
            f"without keys.yaml requests are anonymous, which is for loopback only, not --host "
            f"{args.host}: add keys.yaml, or say `auth: none` in routing.yaml"
        )
    try:
        sockets = [_bind(args.host, args.port)]
    except OSError as error:
        return _refuse(f"cannot listen on {args.host}:{args.port}: {error.strerror}")
    if args.fd is not None:
        sockets.append(socket.socket(fileno=args.fd))
    logs.configure()
    drain_delay_s = args.drain_delay
    if drain_delay_s is None:
        drain_delay_s = config.settings.server.drain_delay_s
    try:
        uvicorn_loop = asyncio.Runner(loop_factory=_new_loop)
        with uvicorn_loop as runner:
            runner.run(_serve(config, redis_url, sockets, drain_delay_s))
    except ValueError as error:
        return _refuse(str(error))
    return 0


async def _serve(
    config: Config, redis_url: str, sockets: list[socket.socket], drain_delay_s: float
) -> None:
    replica = Replica(config, redis_url)
    server = Server(
        uvicorn.Config(
            replica.app,
            http="httptools",
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            backlog=BACKLOG,
        ),
        replica,
        drain_delay_s,
    )
    await server.serve(sockets=sockets)


class Server(uvicorn.Server):
    """uvicorn, with a stop in the order that load balancers need.

    On SIGTERM or SIGINT `/readyz` says no at once; new requests are still taken for the drain
    delay, since nobody learns of it at once; then open ones may end until the drain timeout, and
    the rest is told. A second signal does not wait.
    """

    def __init__(self, config: uvicorn.Config, replica: Replica, drain_delay_s: float) -> None:
        super().__init__(config)
        self._replica = replica
        self._drain_delay_s = drain_delay_s
        self._stopping: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals in the event loop instead of uvicorn's way, which kills itself after."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            if self._stopping:
                self._stopping.cancel()

    def _stop(self) -> None:
        if self._stopping:
            self._replica.lifecycle.cut_off()
            self.should_exit = self.force_exit = True
        else:
            self._stopping = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        self._replica.lifecycle.is_draining = True
        await asyncio.sleep(self._drain_delay_s)
        self.should_exit = True
        await asyncio.sleep(self._replica.config.settings.server.drain_timeout_s)
        self._replica.lifecycle.cut_off()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(BACKLOG)
    listener.set_inheritable(False)
    return listener


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def _refuse(message: str) -> int:
    print(f"concord serve: {message}", file=sys.stderr)
    return 1
