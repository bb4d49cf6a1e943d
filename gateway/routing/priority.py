"""How urgent a request is to an engine that schedules by priority."""

from __future__ import annotations

from gateway.config.schema import Prefill


def priority(uncached_tokens: int, prefill: Prefill) -> int:
    """The number to send along for a prompt of which the engine has this much yet to compute."""
    if uncached_tokens >= prefill.elephant_tokens:
        return prefill.priorities.elephant
    if uncached_tokens >= prefill.intervene_tokens:
        return prefill.priorities.large
    return prefill.priorities.interactive
