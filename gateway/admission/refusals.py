"""What a caller is told whose limits leave no room."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.limits import Limit, Scope
from gateway.errors import BudgetSpent, CallerLimited
from gateway.state.caller_store import Need, ReserveReply, scope_name
from gateway.state.standing import NAMES

_HOLDERS = {"key": "key", "user": "user", "team": "team", "model": "key and model"}


def refusal(
    reply: ReserveReply,
    scopes: Sequence[Scope],
    need: Need,
    *,
    window_ms: int,
    retry_after_ms: int,
) -> CallerLimited:
    """Name the limit that refuses, what is left of it, and when to come again (0 ms: never)."""
    name, _, kind = reply.limit.partition(" ")
    limit = f"{name} {NAMES[kind]}"
    scope = next(scope for scope in scopes if scope_name(scope) == name)
    holder = f"{_HOLDERS[scope.kind]} '{scope.id}'"
    retry_after_s = max(-(-retry_after_ms // 1000), 1) if retry_after_ms else None
    again = f" Try again in {retry_after_s} s." if retry_after_s else ""
    limits = scope.limits
    window = "minute" if window_ms == 60_000 else f"{window_ms / 1000:g} s"
    if reply.is_spent:
        said = f"The budget of {holder} is used up."
        if reply.left > 0:
            said = (
                f"The request may cost {_dollars(need.nanousd)}, and {_dollars(reply.left)} are "
                f"left of the budget of {holder}: ask for fewer max_tokens."
            )
        return BudgetSpent(said + again, limit=limit, retry_after_s=retry_after_s)
    if kind == "budget":
        said = f"What is left of the budget of {holder} is held by requests under way."
    elif kind == "parallel":
        most = _most(limits.max_parallel_requests)
        said = f"The limit of {most} requests at a time of {holder} is reached."
    elif kind == "rpm":
        said = f"The limit of {_most(limits.rpm)} requests per {window} of {holder} is reached."
    else:
        said = (
            f"The limit of {_most(limits.tpm)} tokens per {window} of {holder} has {reply.left} "
            f"left, and the request may need {need.tokens}."
        )
    return CallerLimited(said + again, limit=limit, retry_after_s=retry_after_s)


def _dollars(nanousd: int) -> str:
    return "$" + f"{nanousd / 1e9:.9f}".rstrip("0").rstrip(".")


def _most(limit: Limit | None) -> int:
    return limit.most if limit else 0
