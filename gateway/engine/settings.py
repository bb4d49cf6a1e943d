"""How the engine behaves."""

from __future__ import annotations

from msgspec import Struct


class EngineSettings(Struct, frozen=True, kw_only=True):
    """How the engine behaves. A rate or a number of slots of 0 is no limit."""

    name: str = "engine"
    ttft_ms: float = 50.0
    prefill_tokens_per_s: float = 10_000.0
    tokens_per_s: float = 200.0
    slots: int = 0
    output_tokens: int = 16
