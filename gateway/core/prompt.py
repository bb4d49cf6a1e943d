"""What the cluster is told of a prompt: whose it is, how large, and digests to know it again by."""

from __future__ import annotations

from msgspec import Struct


class Prompt(Struct, frozen=True, kw_only=True):
    """A prompt without its text. Everything empty is a prompt that nothing is kept of."""

    caller: str = ""
    """Keyed digest of the caller and its session."""
    tokens: int = 0
    """Estimated size; 0 is not known."""
    fingerprint: str = ""
    """Keyed digest of the conversation's beginning."""
    anchor: str = ""
    """`<length>:<keyed digest>` of the whole prompt, where somebody will compare it."""
    output_tokens: int = 0
    """What its answer may have at the most, where that is counted or priced; 0 is not known."""
    images: int = 0
    """How many it holds, where they are priced."""


NO_PROMPT = Prompt()
