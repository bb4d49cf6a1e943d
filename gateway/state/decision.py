"""What `admit` and `explain` are asked."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.core.limits import EndpointLimits
from gateway.core.offer import Offers
from gateway.core.prompt import Prompt
from gateway.state.keys import encode_id
from gateway.state.packing import packed_candidates, packed_offers
from gateway.state.policy import Policy

OWN_DIGITS = 8
"""How much of a caller's digest names its own tokens in an endpoint's row."""


class Decision(Struct, frozen=True, kw_only=True):
    """What is to be decided: which of the candidates an attempt gets."""

    policy: Policy
    epoch: int
    """Of the overrides that the candidates follow."""
    candidates: Sequence[tuple[str, float]]
    """Location and weight > 0, in declaration order."""
    reserve: str = ""
    """Location of the candidate that is taken only when no other may be, or it is asked for."""
    tried: Sequence[str]
    """Locations that are out of the question."""
    is_failover: bool = True
    """Whether an endpoint is to blame for what was tried, so that the budget of failover holds."""
    is_again: bool = False
    """Whether this attempt was granted before and could not be made: it is in the budget then."""
    order: str
    """As `lua/admit.lua` says."""
    draws: Sequence[float]
    """Numbers in [0, 1) of 53 bits, where something is drawn: at most one per candidate and two
    more. With fewer the answer may be short of them."""
    prompt: Prompt
    prefill_rate: int = 0
    """Tokens/s to reckon with while no endpoint has shown its own, for `expected_ttft`."""
    limited: Sequence[tuple[str, EndpointLimits]] = ()
    """Locations of the candidates that are limited, and in what."""
    offers: Offers | None = None
    """Of the candidates, in their order, for `routewise`."""

    def _spell_tried(self) -> str:
        words = map(encode_id, self.tried)
        is_counted = self.is_failover and not self.is_again
        return " ".join(words if is_counted else ("~", *words))

    def args(self) -> dict[str, str | int]:
        """Spell it for the scripts."""
        return {
            "epoch": self.epoch,
            "candidates": packed_candidates(
                tuple(self.candidates), tuple(self.limited), self.reserve
            ),
            "tried": self._spell_tried() if self.tried or self.is_again else "",
            "order": self.order,
            "draws": " ".join([str(int(number * 2**53)) for number in self.draws]),
            "rules": f"{self.policy.to_decide} {self.prefill_rate}",
            "caller": self.prompt.caller[:OWN_DIGITS],
            "prompt_tokens": self.prompt.tokens,
            "fingerprint": self.prompt.fingerprint,
            "output_tokens": self.prompt.output_tokens,
            "offers": packed_offers(self.offers) if self.offers else "",
        }
