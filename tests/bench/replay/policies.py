"""The policies that are compared: the gateway's strategies, and rules that it does not have.

All of them ask the real `admit` for their claim. Where a rule is none of the gateway's, the
candidates are put to it in the order that the rule prefers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.state.policy import Policy

Table = Sequence[tuple[str, float]]
"""Location and weight."""
BARE = Policy(affinity=False, prefill=False)
PINS = Policy(prefill=False)
ALL = Policy()


class Contender(Struct, frozen=True, kw_only=True):
    """One policy of the comparison."""

    name: str
    what: str
    policy: Policy = BARE
    order: str = "draw"
    """How `admit` takes the candidates of the first attempt."""
    later: str = "declared"
    """And of those that follow a failure."""
    knows_speeds: bool = False
    """Whether weights are the engines' true speeds; else all are alike."""
    is_least_busy: bool = False
    """Whether candidates are declared in the order of their requests in flight."""

    def candidates(
        self, speeds: Mapping[str, float], inflight: Mapping[str, int], lots: Sequence[float]
    ) -> Table:
        """The table for `admit`, of the engines in the cluster. `lots` break ties."""
        if self.is_least_busy:
            busy = sorted(
                (inflight.get(at, 0), lot, at) for at, lot in zip(speeds, lots, strict=True)
            )
            return [(at, 1.0) for _, _, at in busy]
        return list((speeds if self.knows_speeds else dict.fromkeys(speeds, 1.0)).items())


CONTENDERS = (
    Contender(name="uniform", what="drawn at random"),
    Contender(
        name="least busy",
        what="fewest requests in flight, ties at random",
        order="declared",
        is_least_busy=True,
    ),
    Contender(name="weights", what="drawn by weight", knows_speeds=True),
    Contender(
        name="pins", what="weights, and a conversation stays", policy=PINS, knows_speeds=True
    ),
    Contender(
        name="fixed",
        what="`router: fixed`: pins up to a ceiling, the lighter of two draws by weight",
        policy=ALL,
        knows_speeds=True,
    ),
    Contender(
        name="expected_ttft",
        what="`router: expected_ttft`, which is told no speeds",
        policy=ALL,
        order="expected_ttft",
        later="expected_ttft",
    ),
)
