"""Numbers of the last while, kept in order, since percentiles are asked for again and again."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque


class Window:
    """What was seen in the last `length_ms`, of that the last `most`; `None` is no limit."""

    def __init__(self, length_ms: float, most: int | None) -> None:
        self._length_ms = length_ms
        self._most = most
        self._seen: deque[tuple[int, float | None]] = deque()
        self.ordered: list[float] = []
        """The numbers, the least first."""

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, at_ms: int, number: float | None) -> None:
        """Take in what was seen; `None` is something without a number. MUST be called in order."""
        if len(self._seen) == self._most:
            self._drop()
        self._seen.append((at_ms, number))
        if number is not None:
            insort(self.ordered, number)

    def forget(self, now_ms: int) -> None:
        """Drop what is too old by now."""
        while self._seen and self._seen[0][0] < now_ms - self._length_ms:
            self._drop()

    def _drop(self) -> None:
        _, number = self._seen.popleft()
        if number is not None:
            del self.ordered[bisect_left(self.ordered, number)]
