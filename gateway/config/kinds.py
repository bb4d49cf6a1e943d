"""The protocols a route may speak (`kind`)."""

from __future__ import annotations

import re

SPOKEN = (
    "openai_compat",
    "staging",
    "vllm",
    "sglang",
    "ollama",
    "chutes",
    "featherless",
    "cliproxy",
    "deepseek",
    "kimi",
    "zai",
    "minimax",
    "openrouter",
)
"""OpenAI-shaped kinds. `openrouter[slug]` pins one of OpenRouter's own providers."""

NOT_YET = ("gemini", "claude", "anthropic")
"""Known by name, but this version does not speak their protocol."""

GENERIC = ("openai_compat", "vllm", "sglang")
"""Kinds that say nothing of the provider, so that the host name gives the location."""

_BRACKET = re.compile(r"openrouter\[[A-Za-z0-9_.-]+\]")


def is_spoken(kind: str) -> bool:
    """Say whether this version can talk to a route of that kind."""
    return kind in SPOKEN or _BRACKET.fullmatch(kind) is not None
