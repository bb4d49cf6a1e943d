"""Endpoints with limits, as `admit` takes them, and what is taken of these, read here anew."""

from __future__ import annotations

from gateway.core.limits import EndpointLimits, Limit
from gateway.core.prompt import Prompt
from gateway.state.packing import packed_limits
from tests.lua.rig import Rig

PARTS = 30


def limits_of(**each: Limit | int) -> EndpointLimits:
    """A bare number is a limit that refuses."""
    return EndpointLimits(
        **{kind: Limit(one) if isinstance(one, int) else one for kind, one in each.items()}
    )


def limited(location: str, limits: EndpointLimits | None = None, **each: Limit | int) -> str:
    """A candidate of weight 1."""
    return packed_limits([(location, limits or limits_of(**each))]).replace("|", " 1|")


def asking(input_tokens: int, output_tokens: int = 0, caller: str = "") -> Prompt:
    """A prompt of so many tokens, whose answer may have so many at the most (0: nobody says)."""
    return Prompt(caller=caller, tokens=input_tokens, output_tokens=output_tokens)


def taken(rig: Rig, field: str) -> int:
    """What counts in the window `<location>:<kind>` by the server's clock."""
    return counting(rig.field(field) or "", rig.now_ms)


def counting(text: str, now: int) -> int:
    """What counts in a window, by its text alone."""
    kind, *numbers = text.split() or [""]
    if kind == "fixed":
        length, start, total = map(int, numbers)
        return total if now < start + length else 0
    if kind == "sliding":
        length, newest, total, *parts = map(int, numbers)
        assert total == sum(parts), "its head says the same as its parts"
        passed = now // -(-length // PARTS) - newest
        return sum(count for age, count in enumerate(parts, passed) if age <= PARTS)
    return 0
