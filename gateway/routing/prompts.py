"""What the cluster is told of a request's prompt."""

from __future__ import annotations

from gateway.admission.claims import Claim
from gateway.admission.secret import Secret
from gateway.config.schema import Prefill
from gateway.core.caller import Caller
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.core.request import ChatRequest
from gateway.core.route import Model
from gateway.protocols.output_bound import images, most_output
from gateway.protocols.prefix import PromptBytes, fingerprint
from gateway.protocols.token_estimate import estimate_tokens
from gateway.routing.affinity import affinity_key
from gateway.routing.priority import priority
from gateway.routing.strategies import strategy_of
from gateway.state.policy import Policy


class Prompts:
    """Sizes prompts and digests what they are known by, as far as the policy has a use for it."""

    def __init__(self, secret: Secret, policy: Policy, prefill: Prefill) -> None:
        self._secret = secret
        self._policy = policy
        self._prefill = prefill

    def of(
        self, chat: ChatRequest, caller: Caller | None, session_id: str | None, model: Model
    ) -> Prompt:
        """Describe a prompt. Nothing is kept of a caller who cannot be told from others.

        Where the model's strategy tells conversations apart, one that has no name of a session is
        known by its beginning.
        """
        policy, key = self._policy, self._secret.key
        output_tokens = most_output(chat, model) if model.counts_tokens else 0
        if not (policy.affinity or policy.prefill or model.counts_tokens):
            return NO_PROMPT
        begins = fingerprint(chat, key) if key and policy.prefill else ""
        if not session_id and strategy_of(model).COMPARES:
            session_id = begins
        name = affinity_key(caller, session_id, key) if key else None
        tokens = estimate_tokens(chat) if policy.prefill or model.counts_tokens else 0
        count = images(chat) if strategy_of(model).IS_CALIBRATED else 0
        if not policy.prefill:
            name = name or ""
            return Prompt(caller=name, tokens=tokens, output_tokens=output_tokens, images=count)
        if key is None or name is None:
            return Prompt(tokens=tokens, output_tokens=output_tokens, images=count)
        asked = any(route.priority_scheduling for route in model.routes)
        return Prompt(
            caller=name,
            tokens=tokens,
            fingerprint=begins,
            anchor=PromptBytes(chat, key).anchor() if asked else "",
            output_tokens=output_tokens,
            images=count,
        )

    def priority(self, chat: ChatRequest, claim: Claim) -> int | None:
        """How urgent an attempt is to its engine; `None` where that is not to be told.

        What the endpoint has cached counts only if this prompt goes on from it to the letter.
        """
        if not (claim.route.priority_scheduling and self._policy.prefill):
            return None
        uncached = claim.prompt.tokens
        key = self._secret.key
        if claim.anchor and key and PromptBytes(chat, key).holds(claim.anchor):
            uncached = max(uncached - claim.cached_tokens, 0)
        return priority(uncached, self._prefill)
