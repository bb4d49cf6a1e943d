"""Claims of this replica, from grant to settlement."""

from __future__ import annotations

import itertools
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.core.request import Usage
from gateway.core.route import Route
from gateway.state.policy import Policy
from gateway.telemetry.tracing import UNTRACED, Trace

UNSENT = "unsent"
"""What `settle` is told of an attempt that was not sent: it has used nothing of any limit."""


class Claim(Struct, kw_only=True, eq=False):
    """Room on one endpoint for one attempt. Ends once."""

    id: str
    route: Route
    policy: Policy
    """The rules under which it was granted, and ends."""
    prompt: Prompt = NO_PROMPT
    dropped: dict[str, str]
    """Location to reason, of the endpoints passed over before this one was chosen."""
    draws: Sequence[float] = ()
    """The numbers that drew it."""
    pin: str = ""
    """What became of the caller's pin: `kept`, `made`, or nothing."""
    may_unpin: bool = False
    """Whether a failure moves the caller elsewhere."""
    tokens: int = 0
    """What it is charged for in prefill, until its first output."""
    is_elephant: bool = False
    cached_tokens: int = 0
    """How much of the conversation the endpoint is believed to have cached, if its anchor holds."""
    anchor: str = ""
    is_probe: bool = False
    could_offload: bool = False
    """Whether the route kept for that could have been taken, too, when it was granted."""
    is_only: bool = False
    """Whether no other route of the model is in service."""
    is_queued: bool = False
    """Whether the attempt stands in line at a gate."""
    first: bool = False
    """Whether the attempt has had its first output."""
    sent_s: float | None = None
    """When the attempt was sent: at its grant, or when it has left the line at a gate. `None`
    where no rate is learned."""
    ttft_ms: int = 0
    """From then to the first output; 0 where nothing is learned from it."""
    taken: str = ""
    """Of its endpoint's limits, as the store has said; empty where there are none."""
    usage: Usage | None = None
    """What the attempt has used, where its upstream said."""
    output_tokens: int | None = None
    """What has come back, by our own estimate; `None` where that does not tell what was made."""
    used: str = ""
    """What of the limits stays taken, as `settle` is told; empty for all of it."""
    cooling: str = ""
    """What its end means for its endpoint's cooldown, as `settle` is told."""
    has_supply: bool = False
    """Whether it has drawn from the pool of its route, or may have."""
    outcomes_kept: int = 0
    """How many outcomes are kept of its model, for the coordinator to learn from."""
    noted: str = ""
    """What is kept of its own, as `settle` is told; empty for nothing."""
    trace: Trace = UNTRACED
    """Of the request, which may be over when the claim ends."""

    @property
    def is_prefill(self) -> bool:
        """Whether the attempt has been sent, and waits for its first output."""
        return not (self.is_queued or self.first)


class Claims:
    """The claims this replica holds, by model; what is in here gets renewed."""

    def __init__(self, replica_id: str) -> None:
        self.replica_id = replica_id
        self._numbers = itertools.count(1)
        self._held: defaultdict[str, dict[str, Claim]] = defaultdict(dict)

    def next_id(self) -> str:
        """A fresh id, `<replica>.<number>`."""
        return f"{self.replica_id}.{next(self._numbers)}"

    def add(self, claim: Claim) -> None:
        """Hold a granted claim."""
        self._held[claim.route.model_id][claim.id] = claim

    def end(self, claim: Claim) -> bool:
        """Let go of a claim. Returns whether it was held: only the first caller settles."""
        return self._held[claim.route.model_id].pop(claim.id, None) is not None

    def holds(self, claim: Claim) -> bool:
        """Whether the claim has not ended yet."""
        return claim.id in self._held[claim.route.model_id]

    def by_model(self) -> Iterator[tuple[str, list[Claim]]]:
        """Models with claims on them, and the claims."""
        for model_id, held in list(self._held.items()):
            if held:
                yield model_id, list(held.values())

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))


def new_replica_id() -> str:
    """An id for this process, new at every start."""
    return "r" + secrets.token_hex(4)


def batches(claims: Iterable[Claim], size: int = 128) -> Iterator[list[Claim]]:
    """Cut claims into the batches that one `renew` call takes."""
    rest = iter(claims)
    while batch := list(itertools.islice(rest, size)):
        yield batch
