"""What is kept of how attempts have ended, for the coordinator to learn from.

Nothing is kept where the model's strategy does not go by what is learned.
"""

from __future__ import annotations

import time

from gateway.admission.claims import Claim
from gateway.core.outcome import Failure, Outcome
from gateway.core.request import Usage
from gateway.state.outcomes import Ended, write_ended

_NONE = Usage()
MOST_TOKENS = 10**9
"""Whatever an upstream says, what is learned from it stays sane."""


def note_success(claim: Claim) -> str:
    """Of an attempt that has answered: what it took to the first output, else the whole answer."""
    if not claim.outcomes_kept:
        return ""
    usage = claim.usage or _NONE
    return _noted(
        claim,
        Ended(
            location=claim.route.location,
            is_ok=True,
            ttft_ms=claim.ttft_ms or elapsed_ms(claim),
            prompt_tokens=min(usage.prompt_tokens, MOST_TOKENS),
            output_tokens=min(usage.completion_tokens, MOST_TOKENS),
        ),
    )


def note_failure(claim: Claim, failure: Failure) -> str:
    """Of an attempt that has failed, unless that says nothing of the endpoint."""
    if not claim.outcomes_kept or failure.outcome is Outcome.NEUTRAL:
        return ""
    return _noted(claim, Ended(location=claim.route.location, is_ok=False))


def note_cut_off(claim: Claim) -> str:
    """Of an attempt that was cut off: its first output, if that has come."""
    if not claim.outcomes_kept or not claim.ttft_ms:
        return ""
    ended = Ended(location=claim.route.location, is_ok=True, ttft_ms=claim.ttft_ms)
    return _noted(claim, ended)


def elapsed_ms(claim: Claim) -> int:
    """How long ago an attempt was sent, at least 1 ms; 0 where that was not noted."""
    if claim.sent_s is None:
        return 0
    return max(round((time.monotonic() - claim.sent_s) * 1000), 1)


def _noted(claim: Claim, ended: Ended) -> str:
    return f"{claim.outcomes_kept} {write_ended(ended)}"
