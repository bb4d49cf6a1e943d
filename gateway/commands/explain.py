"""`concord explain MODEL`: where a request would go now, and why not elsewhere."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from gateway.commands.asking import add_options, answer
from gateway.commands.standing import budgets, cooling, limits
from gateway.commands.table import table

if TYPE_CHECKING:
    from gateway.admin.explanation import Candidate, Explanation

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
    parser.add_argument("--prompt-tokens", metavar="N", help="the size of its prompt")
    parser.add_argument("--max-tokens", metavar="N", help="the bound that it puts on its answer")
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
        "prompt_tokens": args.prompt_tokens,
        "max_tokens": args.max_tokens,
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
    if found.hedge:
        to = ", else ".join(found.hedge.locations)
        lines.append(f"a stream without output for {found.hedge.after_ms:.0f} ms goes to {to}, too")
    scored = any(one.score is not None for one in found.candidates)
    mixed = found.order == "routewise"
    if mixed:
        lines.append(_mixture(found))
    elif scored:
        lines.append("to the least score, weights choosing within 5 % of it")
    score = ("COST", "TTFT", "KNOWN") if mixed else ("SCORE",) if scored else ()
    heads = ("ENDPOINT", "WEIGHT", *score, "SHARE", "REASON", "HOLDS")
    rows = [_row(one, scored=scored, mixed=mixed) for one in found.candidates]
    tables = [
        table(heads, rows),
        *limits((one.endpoint, one.limits) for one in found.candidates),
        *budgets([(found.model, found.retry_budget)] if found.retry_budget else []),
    ]
    return "\n\n".join(["\n".join(lines), *tables])


def _mixture(found: Explanation) -> str:
    """What the mixture comes to, and how old what it comes from is."""
    mixed = [one for one in found.candidates if one.share]
    cost = sum(one.share * (one.cost_usd or 0) for one in mixed)
    ttft_s = sum(one.share * (one.score or 0) for one in mixed) / 1000
    age_ms = found.profile_age_ms
    age = "nothing learned yet" if age_ms is None else f"learned {age_ms / 1000:.0f} s ago"
    return f"mixed: {_usd(cost)} and {ttft_s:.3f} s on average ({age})"


def _usd(cost: float | None) -> str:
    return "" if cost is None else f"${cost:.3g}"


def _row(one: Candidate, *, scored: bool, mixed: bool) -> tuple[str, ...]:
    score = "" if one.score is None else f"{one.score / 1000:.3f} s"
    fields = " ".join(f"{name}={value}" for name, value in sorted(one.holds.items()))
    holds = ", ".join(filter(None, [*cooling(one.cooldown), fields]))
    chance: tuple[str, ...] = (score,) if scored else ()
    if mixed:
        chance = (_usd(one.cost_usd), score, one.latency_source or "")
    return one.endpoint, f"{one.weight:g}", *chance, f"{one.share:.1%}", one.reason or "", holds
