"""Keys that stand where none belongs, such as one pasted into a label: told by their look."""

from __future__ import annotations

import re

_KEY = re.compile(
    r"\b(?:sk-[\w-]{12,}|(?:xai|csk|pplx|nvapi)-[\w-]{20,}|(?:gsk|hf|fw|r8|tgp)_\w{20,}"
    r"|AIza[\w-]{30,})",
    re.ASCII,
)
"""As the usual providers make them, and as we do."""
MASK = "[key]"


def looks_like_key(text: str) -> bool:
    """Whether a text holds what looks like a key."""
    return _KEY.search(text) is not None


def mask_keys(text: str) -> str:
    """The text without what looks like a key."""
    return _KEY.sub(MASK, text)
