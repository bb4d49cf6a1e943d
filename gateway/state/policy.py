"""The rules that a request's decisions follow, as the scripts take them."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from gateway.config.schema import Settings


class Policy(Struct, frozen=True, kw_only=True, dict=True):
    """`circuit:`, `affinity:`, `prefill:`, `limits:` and `retry_budget:` of the config.

    Sizes are tokens.
    """

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
    window_ms: int = 60_000
    """For how long requests and tokens count against the limits of endpoints."""
    retry_percent: int = 20
    """Of first attempts, how many others there may be; -1 is no budget."""
    retry_floor: int = 3

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        """The rules that these settings come to."""
        circuit, affinity, prefill = settings.circuit, settings.affinity, settings.prefill
        retry = settings.retry_budget
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
            window_ms=int(settings.limits.window_seconds * 1000),
            retry_percent=retry.percent if retry.enabled else -1,
            retry_floor=retry.floor,
        )

    @cached_property
    def to_decide(self) -> str:
        """What `admit` and `explain` are told of it, but for the last word (RULES, lua/lib/ask)."""
        words = (
            self.failure_threshold,
            self.cooldown_ms,
            int(self.affinity),
            self.pin_max_age_ms,
            int(self.prefill),
            self.intervene_tokens,
            max(self.elephant_tokens, 1),
            max(self.elephant_limit, 1),
            self.affinity_ceiling,
            self.hint_ttl_ms,
            self.window_ms,
            self.retry_percent,
            self.retry_floor,
        )
        return " ".join(map(str, words))

    @cached_property
    def to_record(self) -> str:
        """What `first_token` and `settle` are told of it."""
        return (
            f"{self.failure_threshold} {self.cooldown_ms} {self.min_availability:.17g} "
            f"{self.ewma_alpha:.17g} {self.hint_ttl_ms}"
        )


USUAL = Policy()
"""What holds where nothing is configured."""
