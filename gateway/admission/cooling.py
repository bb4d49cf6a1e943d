"""Whether an ended attempt pauses its endpoint: all that a replica can say of that alone.

What depends on how other attempts have fared is decided in the store, by words that are added here
(`lua/lib/cooling.lua`).
"""

from __future__ import annotations

from gateway.core.cooldown import DEFAULT_MS, Cooldown
from gateway.core.outcome import ErrorClass, Failure, Outcome

_CAN_PAUSE = frozenset(
    {
        ErrorClass.AUTHENTICATION,
        ErrorClass.PAYMENT,
        ErrorClass.NOT_FOUND,
        ErrorClass.TIMEOUT,
        ErrorClass.RATE_LIMIT,
        ErrorClass.INTERNAL_SERVER,
        ErrorClass.BAD_GATEWAY,
        ErrorClass.SERVICE_UNAVAILABLE,
    }
)
_PAUSES_EVEN_THE_ONLY = frozenset({ErrorClass.AUTHENTICATION, ErrorClass.NOT_FOUND})
"""There the endpoint serves nobody, until somebody has seen to it."""
_PAUSES_AT_ONCE = _PAUSES_EVEN_THE_ONLY | {ErrorClass.RATE_LIMIT, ErrorClass.PAYMENT}
LEAST_ATTEMPTS, LEAST_OF_THE_ONLY = 5, 1000
"""Attempts in a minute before their failures say something: of one endpoint among several, and of
a model's only one."""
USUALLY_ALLOWED_FAILS = 3
"""Of classes that a policy does not name, where no number is given for them either."""


def outcome_of(failure: Failure, rules: Cooldown) -> Outcome:
    """What a failure says of its endpoint's circuit, which a refusal for haste may not concern."""
    if rules.policy == "litellm" and failure.error_class is ErrorClass.RATE_LIMIT:
        return Outcome.NEUTRAL
    return failure.outcome


def cooling_after_failure(failure: Failure, rules: Cooldown, *, is_only: bool) -> str:
    """What `settle` is to do about a failed attempt; empty for nothing.

    `is_only` says that no other endpoint serves the model.
    """
    kind, allowed_of = failure.error_class, rules.allowed_fails_by_class
    if rules.time_ms == 0 or not (kind in _CAN_PAUSE or kind in allowed_of):
        return ""
    pause = f"length_ms={_length_ms(failure, rules)} reason={failure.error_type}"
    if rules.policy == "hybrid":
        return "" if failure.retry_after_ms is None else pause
    if rules.counts_fails:
        return "" if is_only else f"{pause} {_unless_allowed(kind, rules)}"
    if kind in _PAUSES_EVEN_THE_ONLY or (kind in _PAUSES_AT_ONCE and not is_only):
        return f"tally=failed {pause}"
    if kind in _PAUSES_AT_ONCE:
        return "tally=failed"
    condition = f"wholly={LEAST_OF_THE_ONLY}" if is_only else f"mostly={LEAST_ATTEMPTS}"
    return f"tally=failed {pause} {condition}"


def cooling_after_success(rules: Cooldown) -> str:
    """The same for an attempt that was served."""
    tallies = rules.policy == "litellm" and not rules.counts_fails and rules.time_ms != 0
    return "tally=succeeded" if tallies else ""


def _length_ms(failure: Failure, rules: Cooldown) -> int:
    """The longer of what the config and the upstream say."""
    asked_ms = min(failure.retry_after_ms or 0, rules.max_ms)
    return max(asked_ms, rules.time_ms or 0) or DEFAULT_MS


def _unless_allowed(kind: ErrorClass, rules: Cooldown) -> str:
    """How many failures are no reason yet, and of which count."""
    count, allowed = str(kind), rules.allowed_fails_by_class.get(kind)
    if allowed is None:
        count, allowed = "any", rules.allowed_fails
    if allowed is None:
        allowed = USUALLY_ALLOWED_FAILS
    return f"count={count} allowed={allowed} within_ms={rules.fails_within_ms}"
