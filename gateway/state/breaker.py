"""A breaker between this replica and Redis: an outage costs no request more than one wait."""

from __future__ import annotations

import random
from collections.abc import Callable


class Breaker:
    """Opens after several failures in a row, then lets one call through at a time to try again.

    In a row means one begun after the other had failed: calls that share one stall fail together
    and count once, so one slow answer does not open it. The pause is jittered, so that replicas do
    not return together.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        threshold: int = 5,
        pause_s: float = 1.0,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._clock = clock
        self._threshold = threshold
        self._pause_s = pause_s
        self._jitter = jitter
        self._failures = 0
        self._begun = 0
        self._begun_at_failure = 0
        self._closed_until_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the last calls all failed. A trial call may still be allowed."""
        return self._failures >= self._threshold

    def begin(self) -> int | None:
        """Begin a call: its number, from 1, or `None` when it may not go out now.

        While open, one call per pause may, as the trial.
        """
        if self.is_open:
            now = self._clock()
            if now < self._closed_until_s:
                return None
            self._pause(now)
        self._begun += 1
        return self._begun

    def succeeded(self) -> None:
        """Note that Redis answered, whatever it said."""
        self._failures = 0

    def failed(self, number: int) -> None:
        """Note that Redis did not answer that call, or could not do its work."""
        if number <= self._begun_at_failure:
            return  # it was under way at the failure that has been counted
        self._begun_at_failure = self._begun
        self._failures += 1
        if self.is_open:
            self._pause(self._clock())

    def _pause(self, now: float) -> None:
        self._closed_until_s = now + self._pause_s * self._jitter(0.5, 1.0)
