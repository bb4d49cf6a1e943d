"""The store, in memory: keeps claims and hears outcomes, and judges as it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gateway.core.outcome import Outcome
from gateway.state.store import AdmitReply, RecordReply
from tests.fakes.holds import Hold


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
        self.orders: list[str] = []
        self.firsts: list[str] = []
        """Locations that have had a first output."""
        self.raising: dict[str, list[Exception]] = {}
        """Script to the errors of its next calls."""
        self.holds: dict[str, Hold] = {}
        """Script to the hold in which its calls wait, after they have taken effect."""
        self.holds_before: dict[str, Hold] = {}
        """The same, before they take effect."""

    async def admit(
        self,
        model_id: str,
        *,
        claim: str,
        candidates: Sequence[tuple[str, float]],
        tried: Sequence[str],
        order: str,
        **_: Any,
    ) -> AdmitReply:
        """Grant or refuse."""
        await self._begin("admit")
        self.orders.append(order)
        closed = {**self.closed, **dict.fromkeys(tried, "already_attempted")}
        reasons = " ".join(f"{at}={closed[at]}" for at, _ in candidates if at in closed)
        free = [at for at, _ in candidates if at not in closed]
        if free:
            self.standing[claim] = free[0]
        await self._hold("admit")
        if free:
            return AdmitReply("admitted", free[0], 0, 1, 1, 0, reasons)
        return AdmitReply("refused", "", 0, 0, len(candidates), self.retry_after_ms, reasons)

    async def first_token(self, model_id: str, *, claim: str) -> RecordReply:
        """Note a first output."""
        await self._begin("first_token")
        if claim not in self.standing:
            return RecordReply("gone", "")
        self.firsts.append(self.standing[claim])
        await self._hold("first_token")
        return RecordReply("done", "")

    async def settle(
        self, model_id: str, *, claim: str, outcome: Outcome, status: int, **_: Any
    ) -> RecordReply:
        """End a claim."""
        await self._begin("settle")
        self.ended[claim] += 1
        location = self.standing.pop(claim, None)
        if location is None:
            return RecordReply("gone", "")
        self.outcomes.append((location, outcome, status))
        await self._hold("settle")
        return RecordReply("done", "")

    async def _begin(self, script: str) -> None:
        if hold := self.holds_before.get(script):
            await hold.wait()
        if errors := self.raising.get(script):
            raise errors.pop(0)

    async def _hold(self, script: str) -> None:
        if hold := self.holds.get(script):
            await hold.wait()
