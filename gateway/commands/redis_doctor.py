"""`concord redis doctor`: whether state is safe in this Redis, and what there is of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gateway.commands.asking import add_options, answer
from gateway.commands.status import redis
from gateway.commands.table import table

if TYPE_CHECKING:
    from gateway.admin.doctor import Diagnosis
    from gateway.state.look import Look

KIB = 1024


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("redis", help="examine a cluster's Redis")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    doctor = actions.add_parser("doctor", help="look at its settings, its clock and all our keys")
    add_options(doctor)
    doctor.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was found. Exit codes as of `answer`, and 1 when something is wrong."""
    return answer(
        args,
        lambda cluster: cluster.examine_redis(),
        _text,
        code=lambda found: 1 if found.problems else 0,
    )


def _text(found: Diagnosis) -> str:
    parts = [f"redis  {redis(found.redis)}", f"clock  {_clock(found.redis)}"]
    if found.families is not None:
        heads = ("FAMILY", "KEYS", "KIB", "LARGEST KIB", "WITHOUT TTL")
        rows = [
            (
                one.name,
                str(one.keys),
                f"{one.bytes / KIB:.1f}",
                f"{one.largest_bytes / KIB:.1f}",
                str(one.lasting),
            )
            for one in found.families
        ]
        parts.append(f"\n{table(heads, rows)}\n" if rows else "\nno keys\n")
    parts += [f"problem: {problem}" for problem in found.problems] or ["nothing is wrong"]
    return "\n".join(parts)


def _clock(look: Look) -> str:
    if look.ahead_ms is None:
        return "not told"
    return f"{look.ahead_ms / 1000:+.3f} s to this host's"
