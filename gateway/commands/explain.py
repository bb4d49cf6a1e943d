"""`concord explain MODEL`: where a request would go now, and why not elsewhere."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from gateway.commands.asking import add_options, answer
from gateway.commands.table import table

if TYPE_CHECKING:
    from gateway.admin.explain import Candidate, Explanation

_PINS = {
    "kept": "the caller stays where its pin is",
    "made": "the caller has no pin to follow; this request would make one",
}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "explain",
        help="show where a request would go, and why",
        description="Show what would be decided for a request now. Nothing is changed.",
    )
    parser.add_argument("model", metavar="MODEL", help="an id or an alias")
    parser.add_argument("--caller", metavar="K", help="a key's id, or ip:ADDRESS")
    parser.add_argument("--session", metavar="S", help="which of the caller's conversations")
    parser.add_argument("--request-id", metavar="ID", help="replay this request's draw")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the explanation. Exit codes as of `answer`; a refusal is one, too."""
    if args.session and not args.caller:
        print("concord explain: --session needs --caller, whose it is", file=sys.stderr)
        return 2
    given = {
        "model": args.model,
        "caller": args.caller,
        "session": args.session,
        "request_id": args.request_id,
    }
    asked = {name: text for name, text in given.items() if text}
    return answer(args, lambda cluster: cluster.explain(asked), _text)


def _text(found: Explanation) -> str:
    lines = [
        f"model {found.model}, epoch {found.epoch}, request {found.request_id}",
        f"goes to {found.drawn}" if found.drawn else f"is refused: {found.refused}",
    ]
    if found.draws:
        lines.append(f"drawn by {', '.join(f'{number:.6f}' for number in found.draws)}")
    if found.retry_after_ms:
        lines.append(f"may be taken in {found.retry_after_ms / 1000:.1f} s")
    if found.pin:
        lines.append(_PINS.get(found.pin, f"the caller's pin is {found.pin}"))
    if found.probe:
        lines.append("as the trial of a half-open circuit")
    scored = any(one.score is not None for one in found.candidates)
    if scored:
        lines.append("to the least score, weights choosing within 5 % of it")
    score = ("SCORE",) if scored else ()
    heads = ("ENDPOINT", "WEIGHT", *score, "SHARE", "REASON", "HOLDS")
    rows = [_row(one, scored=scored) for one in found.candidates]
    return "\n".join([*lines, "", table(heads, rows)])


def _row(one: Candidate, *, scored: bool) -> tuple[str, ...]:
    score = "" if one.score is None else f"{one.score / 1000:.3f} s"
    holds = " ".join(f"{name}={value}" for name, value in sorted(one.holds.items()))
    chance = (score,) if scored else ()
    return one.endpoint, f"{one.weight:g}", *chance, f"{one.share:.1%}", one.reason or "", holds
