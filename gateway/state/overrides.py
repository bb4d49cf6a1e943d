"""A model's overrides as they stand in the store: readable, and editable by hand.

The fields are `weight:<location>`, `disabled:<label>`, `setting:<name>`, `fallback:<name>` and
`offload`.
"""

from __future__ import annotations

import math
from urllib.parse import unquote

from gateway.core.offload import Offload
from gateway.core.overrides import Overrides, SetOffload
from gateway.state.keys import encode_id
from gateway.state.replies import OverridesReply

OFFLOAD = "offload"
"""The field of the offload policy."""
_YEAR_10000_MS = 253_402_300_800_000


def read_overrides(reply: OverridesReply) -> Overrides:
    """Read what anybody may have edited; nonsense is no override."""
    weights: dict[str, float] = {}
    disabled: set[str] = set()
    tuned: dict[str, dict[str, float]] = {"setting": {}, "fallback": {}}
    offload: SetOffload | None = None
    for field, value in zip(reply.fields[::2], reply.fields[1::2], strict=True):
        what, _, name = field.partition(":")
        if what == "weight" and (weight := _weight(value)) is not None:
            weights[unquote(name)] = weight
        elif what == "disabled":
            disabled.add(unquote(name))
        elif what in tuned and (number := _weight(value)) is not None:
            tuned[what][name] = number
        elif what == OFFLOAD:
            offload = _offload(value)
    return Overrides(
        epoch=int(reply.epoch),
        weights=weights,
        disabled=frozenset(disabled),
        settings=tuned["setting"],
        fallbacks=tuned["fallback"],
        offload=offload,
    )


def _weight(text: str) -> float | None:
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if 0 <= weight < math.inf else None


def write_offload(offload: SetOffload) -> str:
    """Spell it in words, `name=value`."""
    policy = offload.policy
    words = {
        "location": encode_id(policy.location),
        "wait_s": f"{policy.wait_s:.17g}",
        "engine_queue_limit": policy.engine_queue_limit,
        "max_input_tokens": policy.max_input_tokens,
        "at_ms": offload.at_ms,
        "by": encode_id(offload.by),
    }
    return " ".join(f"{name}={value}" for name, value in words.items() if value is not None)


def _offload(text: str) -> SetOffload | None:
    words = dict(word.partition("=")[::2] for word in text.split())
    try:
        wait_s = float(words["wait_s"])
        counts = [
            int(words[name]) if name in words else None
            for name in ("engine_queue_limit", "max_input_tokens")
        ]
        at_ms = int(words.get("at_ms", "0"))
    except (KeyError, ValueError):
        return None
    location = unquote(words.get("location", ""))
    if not location or not 0 < wait_s < math.inf or any(n is not None and n < 1 for n in counts):
        return None
    if not 0 <= at_ms < _YEAR_10000_MS:
        return None
    engine_queue_limit, max_input_tokens = counts
    policy = Offload(
        location=location,
        wait_s=wait_s,
        engine_queue_limit=engine_queue_limit,
        max_input_tokens=max_input_tokens,
    )
    return SetOffload(policy=policy, at_ms=at_ms, by=unquote(words.get("by", "")))
