"""How limits, pauses and the budget of failover stand by now, as the scripts tell it in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from msgspec import Struct

from gateway.state.replies import ExplainReply, RowsReply

NAMES = {
    "rpm": "rpm",
    "tpm": "tpm",
    "itpm": "itpm",
    "otpm": "otpm",
    "parallel": "max_parallel_requests",
    "budget": "max_budget",
}
"""What the scripts call a limit, and what the configuration does."""
_FIELD = re.compile(r"(?:(.+?):)?(own:[0-9a-f]*|[a-z_]+)")


class Use(Struct, frozen=True, kw_only=True):
    """How much of one limit is taken."""

    scope: str
    """Whose limit it is: a scope of a caller's, or an endpoint's location."""
    limit: str
    """As the configuration calls it."""
    taken: int
    """Of `max_budget` in billionths of a dollar, with what is held for requests under way."""
    reset_ms: int
    """In how long it will be whole; 0 when it is, or when that cannot be told."""
    would_have_refused: int
    """How many requests, while it was a shadow."""


class Cooldown(Struct, frozen=True, kw_only=True):
    """A pause of an endpoint."""

    reason: str
    left_s: float


class Retries(Struct, frozen=True, kw_only=True):
    """How often requests for a model have failed over in the last half to one minute."""

    first_attempts: int
    others: int
    """Second and further attempts."""
    allowed: int
    """How many of these there may be."""


class Standing(Struct, frozen=True, kw_only=True):
    """What is live of a model's endpoints, by the server's clock."""

    rows: Mapping[str, Mapping[str, str]]
    """Location -> what -> text; what is of no endpoint is at the location ""."""
    uses: Mapping[str, Sequence[Use]]
    """Of endpoints that are limited, by location."""
    cooldowns: Mapping[str, Cooldown]
    """By location, of those that pause."""
    retries: Retries | None
    """`None` where failover has no budget."""


def standing_of(reply: RowsReply | ExplainReply) -> Standing:
    """Read how a model's endpoints stand (`lua/lib/standing.lua`)."""
    uses: dict[str, list[Use]] = {}
    for use in map(use_of, reply.limits):
        uses.setdefault(unquote(use.scope), []).append(use)
    cooldowns: dict[str, Cooldown] = {}
    for row in reply.cooldowns:
        location, left_ms, reason = row.split()
        cooldowns[unquote(location)] = Cooldown(reason=reason, left_s=int(left_ms) / 1000)
    retries = None
    if reply.retries:
        first_attempts, others, allowed = map(int, reply.retries.split())
        retries = Retries(first_attempts=first_attempts, others=others, allowed=allowed)
    return Standing(rows=rows_of(reply.fields), uses=uses, cooldowns=cooldowns, retries=retries)


def use_of(row: str) -> Use:
    """Read `<scope> <kind> <taken> <reset_ms> <would_refuse>`, a limit in words."""
    scope, kind, taken, reset_ms, would_refuse = row.split()
    return Use(
        scope=scope,
        limit=NAMES[kind],
        taken=int(taken),
        reset_ms=int(reset_ms),
        would_have_refused=int(would_refuse),
    )


def rows_of(fields: Sequence[str]) -> dict[str, dict[str, str]]:
    """Sort the fields of an endpoints hash, as the scripts answer it, by location and what."""
    rows: dict[str, dict[str, str]] = {}
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        if match := _FIELD.fullmatch(name):
            rows.setdefault(unquote(match[1] or ""), {})[match[2]] = value
    return rows
