"""`concord serve`: one replica."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from pathlib import Path

from gateway.auth.addresses import is_loopback
from gateway.commands.conceal import conceal_password
from gateway.commands.ports import port_or_any
from gateway.config.live import Source
from gateway.config.load import environment
from gateway.telemetry.otlp import CannotTrace

BACKLOG = 2048


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("serve", help="run one replica")
    parser.add_argument(
        "--config", type=Path, required=True, metavar="DIR", help="folder with models.yaml"
    )
    parser.add_argument("--host", default="127.0.0.1", help="default %(default)s")
    parser.add_argument("--port", type=port_or_any, default=4000, help="default %(default)s")
    parser.add_argument("--redis", metavar="URL", help="default: the variable REDIS_URL")
    # What `concord up` passes to its replicas.
    parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--drain-delay", type=float, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until stopped. Returns 0 when stopped, 1 when it could not start."""
    # Until the replica serves there is nothing to read anew, and no reason to die of being asked.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    env = environment()
    conceal_password(args.redis, env)
    redis_url = args.redis or env.get("REDIS_URL")
    if not redis_url:
        return _refuse("serve needs --redis URL or REDIS_URL (redis://, rediss:// or unix://)")
    if not args.config.is_dir():
        print(f"concord serve: --config {args.config} is not a folder", file=sys.stderr)
        return 2
    # Redis is not needed by the other commands, and a good part of their start-up time.
    from gateway.state.redis import judge_redis_url

    try:
        judge_redis_url(redis_url)
    except ValueError as error:
        return _refuse(str(error))
    source = Source(
        folder=args.config, env=env, redis_url=redis_url, is_public=not is_loopback(args.host)
    )
    loaded = source.read()
    for problem in loaded.problems:
        print(f"concord serve: {problem}", file=sys.stderr)
    config = loaded.config
    if config is None:
        return 1
    try:
        sockets = [_bind(args.host, args.port)]
    except OSError as error:
        return _refuse(f"cannot listen on {args.host}:{args.port}: {error.strerror}")
    if args.fd is not None:
        sockets.append(socket.socket(fileno=args.fd))
    drain_delay_s = args.drain_delay
    if drain_delay_s is None:
        drain_delay_s = config.settings.server.drain_delay_s
    # Not needed by the other commands, and the better part of their start-up time.
    from gateway.commands.serving import serve

    try:
        serve(config, source, sockets, drain_delay_s)
    except CannotTrace as error:
        return _refuse(str(error))
    return 0


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


def _refuse(message: str) -> int:
    print(f"concord serve: {message}", file=sys.stderr)
    return 1
