"""Offload: a route that is kept for requests which the others could not place in time."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Offload(Struct, frozen=True, kw_only=True):
    """The policy of one model."""

    location: str
    """Of the route that is kept."""
    wait_s: float
    """How long a request waits for a place elsewhere, and then for its engine."""
    engine_queue_limit: int | None = None
    """How many streams each engine on this host may have before their first output."""
    max_input_tokens: int | None = None
    """Larger prompts are not taken there."""

    def takes(self, tokens: int) -> bool:
        """Whether a prompt of this size may be offloaded."""
        return self.max_input_tokens is None or tokens <= self.max_input_tokens


class OffloadReason(StrEnum):
    """Why a request goes to the offload route."""

    QUEUE_WAIT = "queue_wait"
    """It has got no place at a gate in time."""
    ENGINE_WAIT = "engine_wait"
    """An engine has begun no answer in time."""
    LAST_RESORT = "last_resort"
    """Nothing else is left."""


class OffloadWalk(Struct, kw_only=True):
    """One request's way about the offload route: there once at most, and back once at most."""

    is_pending: bool = True
    """Whether it has not gone there yet."""
    due: OffloadReason | None = None
    """Why it is to go there next."""
    reason: OffloadReason | None = None
    """Why it has gone there."""
    cut: str | None = None
    """The endpoint whose attempt was cut short for that. It gets another, when all else has failed,
    which nothing cuts short."""

    def failed(self, location: str, wait: OffloadReason | None, *, was_cut: bool) -> None:
        """An attempt has failed; `wait` if by waiting in vain.

        `was_cut` says that it would have gone on waiting but for the policy.
        """
        if wait and self.is_pending:
            self.due = wait
            self.cut = location if was_cut else None

    def taken(self) -> OffloadReason:
        """An attempt goes there. Returns why."""
        self.reason = self.due or OffloadReason.LAST_RESORT
        self.is_pending, self.due = False, None
        return self.reason

    def refused(self) -> None:
        """It cannot go there now, and does not ask again."""
        self.is_pending, self.due = False, None

    def go_back(self) -> str | None:
        """The endpoint that gets its other attempt now."""
        cut, self.cut = self.cut, None
        return cut
