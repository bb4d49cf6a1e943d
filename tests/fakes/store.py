"""The store, in memory: keeps claims and hears outcomes, and judges as it is told."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import structs

from gateway.core.outcome import Outcome
from gateway.core.overrides import Overrides
from gateway.state.decision import Decision
from gateway.state.replies import AdmitReply, RecordReply
from tests.fakes.holds import Hold


def admit_reply(status: str, **values: Any) -> AdmitReply:
    """An answer of `admit` that says no more than it must."""
    blank = AdmitReply(status, "", 0, 0, 0, 0, "", "", 0, 0, 0, "", "")
    return structs.replace(blank, **values)


class MemoryStore:
    """Grants the first candidate that is not `closed`.

    It knows neither time nor weights: the scripts themselves are tested on a real Redis.
    """

    def __init__(self) -> None:
        self.closed: dict[str, str] = {}
        """Location to the reason why `admit` strikes it out."""
        self.retry_after_ms = 30_000
        self.standing: dict[str, str] = {}
        """Claim to location, of claims that have not ended."""
        self.ended: Counter[str] = Counter()
        """How often the end of each claim was told."""
        self.outcomes: list[tuple[str, Outcome, int]] = []
        """Location, outcome and status, of each claim that ended."""
        self.used: list[str] = []
        """What it was told that each of them has used of limits."""
        self.unpinned: list[str] = []
        """Locations that callers were to leave."""
        self.decisions: list[Decision] = []
        self.in_force = Overrides()
        self.firsts: list[str] = []
        """Locations that have had a first output."""
        self.queued: list[tuple[str, bool]] = []
        """Locations of attempts that stand in line, or no more."""
        self.ttfts_ms: list[int] = []
        """After what time each of them had it; 0 where that is not told."""
        self.raising: dict[str, list[Exception]] = {}
        """Script to the errors of its next calls."""
        self.holds: dict[str, Hold] = {}
        """Script to the hold in which its calls wait, after they have taken effect."""
        self.holds_before: dict[str, Hold] = {}
        """The same, before they take effect."""

    async def admit(
        self,
        model_id: str,
        decision: Decision,
        *,
        claim: str,
        lease_ms: int,
    ) -> AdmitReply:
        """Grant or refuse."""
        await self._begin("admit")
        self.decisions.append(decision)
        if decision.epoch != self.in_force.epoch:
            return admit_reply("stale")
        candidates = decision.candidates
        closed = {**self.closed, **dict.fromkeys(decision.tried, "already_attempted")}
        reasons = " ".join(f"{at}={closed[at]}" for at, _ in candidates if at in closed)
        free = [at for at, _ in candidates if at not in closed]
        others = [at for at in free if at != decision.reserve]
        could_offload = int(bool(others) and len(others) < len(free))
        if decision.order == "reserve":
            free = [at for at in free if at == decision.reserve]
        else:
            free = others or free
        if free:
            self.standing[claim] = free[0]
        await self._hold("admit")
        if free:
            taken = "rpm:0:0:0" if decision.limited else ""
            said = {"inflight": 1, "drawn": 1, "reasons": reasons, "taken": taken}
            said |= {"reserve": could_offload, "tokens": decision.prompt.tokens}
            return admit_reply("admitted", location=free[0], **said)
        return admit_reply(
            "refused",
            drawn=len(candidates),
            retry_after_ms=self.retry_after_ms,
            reasons=reasons,
        )

    async def overrides(self, model_id: str) -> Overrides:
        """Tell what is in force."""
        await self._begin("overrides")
        return self.in_force

    async def first_token(
        self, model_id: str, *, claim: str, ttft_ms: int, **_: Any
    ) -> RecordReply:
        """Note a first output."""
        await self._begin("first_token")
        if claim not in self.standing:
            return RecordReply("gone", "")
        self.firsts.append(self.standing[claim])
        self.ttfts_ms.append(ttft_ms)
        await self._hold("first_token")
        return RecordReply("done", "")

    async def queue(self, model_id: str, *, claim: str, is_queued: bool) -> None:
        """Note whether an attempt stands in line."""
        await self._begin("queue")
        self.queued.append((self.standing.get(claim, ""), is_queued))

    async def settle(
        self,
        model_id: str,
        *,
        claim: str,
        outcome: Outcome,
        status: int,
        used: str = "",
        unpin: bool = False,
        **_: Any,
    ) -> RecordReply:
        """End a claim."""
        await self._begin("settle")
        self.ended[claim] += 1
        location = self.standing.pop(claim, None)
        if location is None:
            return RecordReply("gone", "")
        self.outcomes.append((location, outcome, status))
        self.used.append(used)
        self.unpinned += [location] if unpin else []
        await self._hold("settle")
        return RecordReply("done", "")

    @property
    def orders(self) -> list[str]:
        """How the candidates of each attempt were to be taken."""
        return [decision.order for decision in self.decisions]

    async def _begin(self, script: str) -> None:
        if hold := self.holds_before.get(script):
            await hold.wait()
        if errors := self.raising.get(script):
            raise errors.pop(0)

    async def _hold(self, script: str) -> None:
        if hold := self.holds.get(script):
            await hold.wait()
