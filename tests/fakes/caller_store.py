"""The callers' side of the store, in memory: grants what it is asked, unless told otherwise."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import structs

from gateway.state.caller_store import Need, ReserveReply
from tests.fakes.holds import Hold

GRANTED = ReserveReply("reserved", "", 0, 0, "", 1, -1, 0, 0, -1, 0, 0)


def refused(limit: str, **values: Any) -> ReserveReply:
    """An answer that names a limit."""
    usual: dict[str, Any] = {"status": "refused", "limit": limit, "fits_again": 0}
    return structs.replace(GRANTED, **{**usual, "retry_after_ms": 12_000, **values})


class MemoryCallerStore:
    """It knows no limits: the scripts themselves are tested on a real Redis."""

    def __init__(self) -> None:
        self.answers: list[ReserveReply] = []
        """What the next reservations are answered; then every one is granted."""
        self.asked: list[Need] = []
        self.scopes: list[str] = []
        """The tag of each reservation that was asked for."""
        self.standing: set[str] = set()
        self.settled: list[tuple[bool, int, int]] = []
        """Of each reservation that ended: whether it was used, tokens, billionths of a dollar."""
        self.ended: Counter[str] = Counter()
        self.reaped: list[str] = []
        self.lost: set[str] = set()
        """Reservations that the store does not know any more."""
        self.raising: dict[str, list[Exception]] = {}
        """Script to the errors of its next calls."""
        self.holds: dict[str, Hold] = {}
        """Script to the hold in which its calls wait, after they have taken effect."""
        self.holds_before: dict[str, Hold] = {}

    async def reserve(self, tag: str, scopes: Any, need: Need, **values: Any) -> ReserveReply:
        """Grant or refuse."""
        await self._begin("reserve")
        self.asked.append(need)
        self.scopes.append(tag)
        answer = self.answers.pop(0) if self.answers else GRANTED
        if answer.is_reserved:
            self.standing.add(values["reservation"])
            answer = structs.replace(answer, held=f"held by {values['reservation']}")
        await self._hold("reserve")
        return answer

    async def settle(
        self, tag: str, *, reservation: str, held: str, is_used: bool, tokens: int, nanousd: int
    ) -> str:
        """End one."""
        await self._begin("settle")
        assert held in ("", f"held by {reservation}")
        self.ended[reservation] += 1
        if reservation not in self.standing:
            return "gone"
        self.standing.remove(reservation)
        self.settled.append((is_used, tokens, nanousd))
        await self._hold("settle")
        return "done"

    async def renew(self, tag: str, *, reservations: list[str], lease_ms: int) -> list[str]:
        """Name those that are lost."""
        await self._begin("renew")
        return [one for one in reservations if one in self.lost]

    async def reassert(
        self, tag: str, *, reservation: str, held: str, lease_ms: int
    ) -> tuple[bool, str]:
        """Put one back."""
        await self._begin("reassert")
        was_lost = reservation in self.lost
        self.lost.discard(reservation)
        return was_lost, held

    async def reap(self, tag: str) -> int:
        """Note that it was asked."""
        self.reaped.append(tag)
        return 0

    def assert_all_ended_once(self) -> None:
        """Nothing stands, and nothing was ended twice."""
        assert not self.standing
        assert all(times == 1 for times in self.ended.values()), self.ended

    async def _begin(self, script: str) -> None:
        if hold := self.holds_before.get(script):
            await hold.wait()
        if errors := self.raising.get(script):
            raise errors.pop(0)

    async def _hold(self, script: str) -> None:
        if hold := self.holds.get(script):
            await hold.wait()
