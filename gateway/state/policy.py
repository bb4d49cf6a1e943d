"""The rules that a request's decisions follow, as the scripts take them."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from gateway.config.schema import Settings

Args = dict[str, str | int]


class Policy(Struct, frozen=True, kw_only=True, dict=True):
    """`circuit:`, `affinity:` and `prefill:` of the config. Sizes are tokens."""

    failure_threshold: int = 3
    cooldown_ms: int = 30_000
    min_availability: float = 0.7
    ewma_alpha: float = 0.1
    affinity: bool = True
    pin_max_age_ms: int = 86_400_000
    """0 is no cap."""
    prefill: bool = True
    intervene_tokens: int = 50_000
    elephant_tokens: int = 200_000
    elephant_limit: int = 1
    affinity_ceiling: int = 150_000
    hint_ttl_ms: int = 1_200_000

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        """The rules that these settings come to."""
        circuit, affinity, prefill = settings.circuit, settings.affinity, settings.prefill
        return cls(
            failure_threshold=circuit.failure_threshold,
            cooldown_ms=int(circuit.cooldown_seconds * 1000),
            min_availability=circuit.min_availability,
            ewma_alpha=circuit.ewma_alpha,
            affinity=affinity.enabled,
            pin_max_age_ms=affinity.max_age_seconds * 1000,
            prefill=prefill.enabled,
            intervene_tokens=prefill.intervene_tokens,
            elephant_tokens=prefill.elephant_tokens,
            elephant_limit=prefill.elephant_limit,
            affinity_ceiling=prefill.affinity_ceiling,
            hint_ttl_ms=prefill.hint_ttl_seconds * 1000,
        )

    @cached_property
    def to_decide(self) -> Args:
        """What `admit` and `explain` are told of it."""
        return {
            "failure_threshold": self.failure_threshold,
            "cooldown_ms": self.cooldown_ms,
            "pin_max_age_ms": self.pin_max_age_ms,
            "prefill": int(self.prefill),
            "intervene_tokens": self.intervene_tokens,
            "elephant_tokens": max(self.elephant_tokens, 1),
            "elephant_limit": max(self.elephant_limit, 1),
            "affinity_ceiling": self.affinity_ceiling,
            "hint_ttl_ms": self.hint_ttl_ms,
        }

    @cached_property
    def to_record(self) -> Args:
        """What `settle` is told of it."""
        return {
            "failure_threshold": self.failure_threshold,
            "cooldown_ms": self.cooldown_ms,
            "min_availability": f"{self.min_availability:.17g}",
            "hint_ttl_ms": self.hint_ttl_ms,
            "ewma_alpha": f"{self.ewma_alpha:.17g}",
        }
