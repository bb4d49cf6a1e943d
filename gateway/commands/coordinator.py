"""`concord coordinator`: one candidate for the cluster's coordinator.

No replica has its code: this starts `python -m coordinator` in its own place.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gateway.commands.conceal import conceal_password
from gateway.commands.ports import port_or_any
from gateway.commands.processes import program
from gateway.config.load import environment

PORT = 4090
EMBEDDED = "embedded://"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("coordinator", help="run a coordinator; of two one stands by")
    parser.add_argument(
        "--config", type=Path, required=True, metavar="DIR", help="the folder replicas serve"
    )
    parser.add_argument("--host", default="127.0.0.1", help="default %(default)s")
    parser.add_argument(
        "--port", type=port_or_any, default=PORT, help="of /livez, /readyz; default %(default)s"
    )
    parser.add_argument("--redis", metavar="URL", help="default: the variable REDIS_URL")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Become a coordinator. Returns only when it cannot start: 1, or 2 for wrong usage."""
    env = environment()
    conceal_password(args.redis, env)
    redis_url = args.redis or env.get("REDIS_URL")
    if not redis_url:
        return _refuse(
            "coordinator needs --redis URL or REDIS_URL (redis://, rediss:// or unix://)"
        )
    if redis_url == EMBEDDED:
        return _refuse("the embedded store lives inside one replica, which needs no coordinator")
    if not args.config.is_dir():
        print(f"concord coordinator: --config {args.config} is not a folder", file=sys.stderr)
        return 2
    # Redis is not needed by the other commands, and a good part of their start-up time.
    from gateway.state.redis import judge_redis_url

    try:
        judge_redis_url(redis_url)
    except ValueError as error:
        return _refuse(str(error))
    place = ["--host", args.host, "--port", str(args.port)]
    command = [*program("coordinator"), "--config", str(args.config), *place]
    os.execve(command[0], command, {**env, "REDIS_URL": redis_url})


def _refuse(message: str) -> int:
    print(f"concord coordinator: {message}", file=sys.stderr)
    return 1
