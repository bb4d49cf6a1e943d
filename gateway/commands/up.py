"""`concord up`: a whole cluster on this machine, for a first look and for small installations.

1. Judge what was given, so that nothing starts in vain: the Redis URL, the ports, the place of the
   file that tells of this cluster.
2. Bind the one socket that all replicas accept on. Replica i also listens on the port + i.
3. Without `--config`, write a demo configuration for two simulated engines. A configuration may
   bring engines of its own (`engines.yaml`).
4. Take the store: the Redis of `--redis` or `REDIS_URL`, else a private server, else the embedded
   store.
5. Start the engines, the replicas and, but on the embedded store, a coordinator, and wait until
   each says that it is ready.
6. Print where everything is, and watch until a signal comes or a process ends by itself.

At the end the replicas drain first; then the coordinator and the engines go, then the store. A
second signal hurries.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gateway.commands.cluster import CannotStart, Cluster, Interrupted, Place
from gateway.commands.conceal import conceal_password, redis_cli
from gateway.commands.demo import without_other_files, write_demo
from gateway.commands.engines import Engine, read_engines
from gateway.commands.ports import HIGHEST, port
from gateway.commands.processes import Interrupts
from gateway.commands.running import (
    NotPrivate,
    Running,
    find,
    prepare,
    publish,
    running_file,
    withdraw,
)
from gateway.config.load import environment, load
from gateway.config.result import Config
from gateway.config.routewise_schema import RoutewiseParams
from gateway.state.server import PrivateRedis, ServerFailed, find_server

EMBEDDED = "embedded://"
COORDINATOR = 90
"""Where the coordinator listens, above the cluster's port."""
ENGINES = {"engine-a": 100, "engine-b": 101}
"""The demo's engines, and where they listen above the cluster's port."""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add `up` to the commands."""
    parser = subparsers.add_parser("up", help="run a whole cluster on this machine")
    parser.add_argument(
        "--config", metavar="DIR", type=Path, help="default: a demo model on two engines"
    )
    parser.add_argument(
        "--replicas", metavar="N", type=_positive, help="default 2; on the embedded store 1"
    )
    parser.add_argument("--host", metavar="H", default="127.0.0.1", help="default %(default)s")
    parser.add_argument("--port", metavar="P", type=port, default=4000, help="default %(default)s")
    parser.add_argument(
        "--redis", metavar="URL", help="default $REDIS_URL, else a private redis-server"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until told to stop (0), or until something cannot start or ends by itself (1)."""
    conceal_password(args.redis, environment())
    try:
        with Interrupts() as interrupts, ExitStack() as stack:
            _run(args, environment(), interrupts, stack)
    except Interrupted:
        return 0
    except (CannotStart, ServerFailed, NotPrivate) as problem:
        _say(str(problem))
        return 1
    return 0


def _run(
    args: argparse.Namespace, environ: Mapping[str, str], interrupts: Interrupts, stack: ExitStack
) -> None:
    given = args.redis or environ.get("REDIS_URL")
    if given:
        _judge_redis(given)
    _judge_ports(args, is_embedded=given == EMBEDDED)
    path = running_file(environ)
    _in_its_folder(path, lambda: prepare(path))
    place = Place(args.host, args.port)
    listener = stack.enter_context(place.listen())
    admin_key = environ.get("CONCORD_ADMIN_KEY") or f"sk-concord-admin-{secrets.token_hex(16)}"
    environ = {**environ, "CONCORD_ADMIN_KEY": admin_key}
    if args.config:
        folder = args.config.resolve()
        engines = read_engines(folder)
    else:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="concord-demo-")))
        engines = [Engine(name=name, port=place.port + above) for name, above in ENGINES.items()]
        write_demo(folder, [engine.port for engine in engines])
        environ = without_other_files(environ)
    config = _load(folder, environ, given)
    store = None if given else _private_store(stack)
    redis = given or (store.url if store else EMBEDDED)
    replicas = _replicas(args.replicas, redis)
    environ = {**environ, "REDIS_URL": redis}  # not in argv, where `ps` would show a password

    cluster = Cluster(interrupts, store)
    stack.callback(cluster.stop, config.settings.server.drain_timeout_s)
    for engine in engines:
        cluster.start_engine(engine.name, engine.port, engine.command(), environ)
    cluster.start_replicas(place, replicas, folder, listener, environ)
    if redis != EMBEDDED:
        cluster.start_coordinator(place, COORDINATOR, folder, environ)
    cluster.wait_until_ready()

    running = Running(
        base_url=f"{place.url()}/v1",
        replicas=tuple(place.url(number) for number in range(1, replicas + 1)),
        redis=redis,
        admin_key=admin_key,
        config=str(folder),
    )
    before = find(path)
    _in_its_folder(path, lambda: publish(path, running))
    stack.callback(withdraw, path, running, before)
    _print(running, config)
    cluster.watch()
    _say("stopping; another signal cuts the wait for open requests short")


def _load(folder: Path, environ: Mapping[str, str], redis: str | None) -> Config:
    loaded = load(folder, environ, redis_url=redis, serving=True)
    if loaded.config is None:
        raise CannotStart(
            "\n".join(["the configuration cannot be served", *map(str, loaded.errors)])
        )
    if not _chats(loaded.config):
        raise CannotStart(
            "\n".join(
                [f"{folder} has no chat model that can be served", *map(str, loaded.warnings)]
            )
        )
    return loaded.config


def _chats(config: Config) -> list[str]:
    return [model.id for model in config.models.values() if model.model_type == "chat"]


def _judge_redis(url: str) -> None:
    # Not needed by the other commands, and a good part of their start-up time.
    from gateway.state.redis import judge_redis_url

    try:
        judge_redis_url(url)
    except ValueError as problem:
        raise CannotStart(str(problem)) from problem


def _judge_ports(args: argparse.Namespace, *, is_embedded: bool) -> None:
    others = [1] if is_embedded else [2, COORDINATOR]
    above = max([args.replicas or 1, *others, *([] if args.config else ENGINES.values())])
    if args.port + above > HIGHEST:
        raise CannotStart(
            f"the ports up to {above} above --port are needed, too, so that {args.port} is too "
            f"high: give at most {HIGHEST - above}"
        )


def _in_its_folder(path: Path, act: Callable[[], None]) -> None:
    try:
        act()
    except OSError as problem:
        raise CannotStart(
            f"cannot write {path}: {problem.strerror} (XDG_RUNTIME_DIR chooses another folder)"
        ) from problem


def _private_store(stack: ExitStack) -> PrivateRedis | None:
    binary = find_server()
    return stack.enter_context(PrivateRedis(binary)) if binary else None


def _replicas(wanted: int | None, redis: str) -> int:
    if redis != EMBEDDED:
        return wanted or 2
    if wanted is not None and wanted > 1:
        raise CannotStart(
            f"the embedded store lives inside one process and cannot serve {wanted} replicas; "
            "install redis-server or give --redis"
        )
    _say("serving from the embedded store: single-process, slow and not durable")
    return 1


def _print(running: Running, config: Config) -> None:
    """Tell on stdout where everything is. Scripts read these lines; `ready` is the last one."""
    model = _chats(config)[0]
    request = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    call = ["curl", "-s", f"{running.base_url}/chat/completions"]
    call += ["-H", "content-type: application/json"]
    if config.keys is not None:
        call += ["-H", f"authorization: Bearer {running.admin_key}"]
    call += ["-d", json.dumps(request)]
    print(f"base_url: {running.base_url}")
    print(f"model: {model}")
    print(f"admin_key: {running.admin_key}")
    print(f"redis: {redis_cli(running.redis)}")
    print(f"curl: {shlex.join(call)}")
    if isinstance(config.models[model].router_params, RoutewiseParams):
        print(f"watch: watch -n 1 concord explain {shlex.quote(model)} --prompt-tokens 1000")
    print("ready", flush=True)


def _say(message: str) -> None:
    print(f"concord up: {message}", file=sys.stderr, flush=True)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of 1 or more")
    return value
