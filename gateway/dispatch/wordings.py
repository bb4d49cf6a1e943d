"""How providers word the two complaints that their statuses do not tell apart.

Each line is a fragment of a provider's sentence, or its code for it. The bare name of a parameter
must match neither: "Unrecognized request argument supplied: context_length" is no refusal of a
long prompt.
"""

from __future__ import annotations

import re

TOO_LONG = re.compile(
    r"longer than the model'?s context length"
    r"|maximum context length"
    r"|longer than the maximum model length"
    r"|\bcontext_length_exceeded\b"
    r"|prompt is too long: \d+ tokens > \d+"
    r"|exceeds the maximum number of tokens allowed"
    r"|exceeded model token limit"
    r"|maximum prompt length is"
    r"|exceeds the available context size",
    re.IGNORECASE,
)
"""The prompt does not fit the model's window."""

UNPAID = re.compile(
    r"credit balance is too low"
    r"|insufficient (?:account )?(?:balance|credits?|funds)"
    r"|\binsufficient_(?:quota|balance|credits)\b"
    r"|exceeded your current quota"
    r"|billing[_ ]hard[_ ]limit"
    r"|\bbilling_not_active\b"
    r"|account is not active"
    r"|\bArrearage\b|account is in good standing",
    re.IGNORECASE,
)
"""The provider wants money from us; the caller can do nothing about it."""
