"""`concord engine`: run a simulated upstream.

It prints its name and base URL on stdout once it accepts connections. Ctrl-C or SIGTERM ends it;
answers under way have a second to finish.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from typing import Any

import uvicorn

from gateway.commands.ports import port_or_any
from gateway.engine.app import engine_app
from gateway.engine.settings import EngineSettings

BACKLOG = 2048


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add `engine` to the commands."""
    parser = subparsers.add_parser("engine", help="run a simulated upstream engine")
    usual = EngineSettings()
    parser.add_argument("--host", default="127.0.0.1", help="default %(default)s")
    parser.add_argument(
        "--port", type=port_or_any, default=8000, help="0 takes a free one (default %(default)s)"
    )
    parser.add_argument("--name", help="answered as system_fingerprint (default engine-PORT)")
    parser.add_argument(
        "--ttft-ms",
        type=_amount,
        default=usual.ttft_ms,
        help="time to the first token of an empty prompt (default %(default)s)",
    )
    parser.add_argument(
        "--prefill-tokens-per-s",
        type=_amount,
        default=usual.prefill_tokens_per_s,
        help="how fast a prompt is read, 0 at once (default %(default)s)",
    )
    parser.add_argument(
        "--tokens-per-s",
        type=_amount,
        default=usual.tokens_per_s,
        help="pace of one answer, 0 as fast as it goes (default %(default)s)",
    )
    parser.add_argument(
        "--slots", type=_whole, default=usual.slots, help="answers at a time, 0 any number"
    )
    parser.add_argument(
        "--output-tokens",
        type=_whole,
        default=usual.output_tokens,
        help="length of an answer that the request does not cap (default %(default)s)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop; 1 when the address cannot be bound."""
    listener = socket.socket(socket.AF_INET6 if ":" in args.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((args.host, args.port))
        listener.listen(BACKLOG)
    except OSError as problem:
        print(
            f"concord engine: cannot listen on {args.host}:{args.port}: {problem.strerror}",
            file=sys.stderr,
        )
        return 1
    port = listener.getsockname()[1]
    settings = EngineSettings(
        name=args.name or f"engine-{port}",
        ttft_ms=args.ttft_ms,
        prefill_tokens_per_s=args.prefill_tokens_per_s,
        tokens_per_s=args.tokens_per_s,
        slots=args.slots,
        output_tokens=args.output_tokens,
    )
    config = uvicorn.Config(
        engine_app(settings),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    host = f"[{args.host}]" if ":" in args.host else args.host
    print(f"{settings.name}: http://{host}:{port}/v1", flush=True)
    for handed_back in (signal.SIGINT, signal.SIGTERM):  # by uvicorn, after its own shutdown
        signal.signal(handed_back, signal.SIG_IGN)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def _amount(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of 0 or more")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of 0 or more")
    return value
