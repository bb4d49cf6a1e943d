"""What the operator's commands share: which cluster is meant, and how its answer is shown.

Only what every start-up can afford is loaded here; the rest is when a command runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gateway.config.load import environment

if TYPE_CHECKING:
    from gateway.commands.reach import Cluster

T = TypeVar("T")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says which cluster is meant, and how it is shown."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--config", type=Path, metavar="DIR", help="default: that of a running `concord up`"
    )
    parser.add_argument(
        "--redis", metavar="URL", help="with --config; default: the variable REDIS_URL"
    )


def answer(
    args: argparse.Namespace,
    ask: Callable[[Cluster], T],
    as_text: Callable[[T], str],
    code: Callable[[T], int] = lambda _: 0,
) -> int:
    """Ask, and print what comes back.

    Returns the `code` of what was found, or, with the reason on stderr, 1 where there is no answer
    and 2 for wrong usage.
    """
    from gateway.commands.reach import CannotTell, reach

    try:
        found = ask(reach(args.config, args.redis, environment()))
    except CannotTell as problem:
        print(f"concord {args.command}: {problem}", file=sys.stderr)
        return problem.code
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(found).decode(), indent=2))
    else:
        print(as_text(found))
    return code(found)
