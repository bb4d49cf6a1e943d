"""What was admitted to the endpoints of a model, and when, as Redis itself tells it."""

from __future__ import annotations

import re
import threading
from collections import deque
from typing import Self

import redis
from msgspec import Struct, structs

PARTS = 30
_GRANTED = re.compile(
    r"^HSET \S+:claimed (\S+) location=(\S+) .*\btaken=([a-z,]+):(\d+):(\d+):(\d+)"
)
_ENDED = re.compile(
    r" (\S+\.\d+) \S+ (?:success|failure|auth|connect|neutral) .* [a-z,]+:\d+:\d+:\d+ "
    r"(unsent|\d+ \d+)"
)
_UNDONE = re.compile(r" (\S+\.\d+)  neutral .* (unsent)")


class Admit(Struct):
    """An attempt that was admitted to an endpoint with limits."""

    location: str
    at_ms: int
    input: int
    output: int
    used: str | None = None
    """Once it has ended: tokens in and out, or that nothing was sent."""

    def charge(self, kind: str) -> int:
        """What it counts for: what it has used, until that is known what was reserved."""
        if self.used == "unsent":
            return 0
        given, taken = map(int, self.used.split()) if self.used else (self.input, self.output)
        return {"tpm": given + taken, "itpm": given, "otpm": taken}.get(kind, 1)


class Admits:
    """Hears all from Redis while it is open: no replica's clock or count enters here."""

    def __init__(self, redis_url: str, model: str = "m") -> None:
        self.by_claim: dict[str, Admit] = {}
        self.log: list[tuple[str, bool]] = []
        """Each claim when it was admitted, and again, with true, when it ended."""
        self._tag = f"gw:{{m:{model}}}:"
        self._redis: redis.Redis = redis.Redis.from_url(redis_url, decode_responses=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_listening = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._redis.echo("enough")
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._redis.close()

    def all(self) -> list[Admit]:
        """In the order in which they were admitted."""
        return list(self.by_claim.values())

    def fullest(self, kind: str, window_ms: int) -> int:
        """The most that a stretch of that length held when something was admitted.

        An attempt counts for what it has used, or for what it has reserved while nobody knew.
        """
        standing = {claim: structs.replace(one, used=None) for claim, one in self.by_claim.items()}
        recent: deque[Admit] = deque()
        most = 0
        for claim, is_end in self.log:
            admit = standing[claim]
            if is_end:
                admit.used = self.by_claim[claim].used
                continue
            recent.append(admit)
            while recent[0].at_ms <= admit.at_ms - window_ms:
                recent.popleft()
            most = max(most, sum(one.charge(kind) for one in recent))
        return most

    def counted(self, when_ms: float, *, until_ms: float, window_ms: int) -> list[Admit]:
        """What counts at a time of all that was admitted until another: parts count whole."""
        part_ms = -(-window_ms // PARTS)
        oldest = when_ms // part_ms - PARTS
        return [
            admit
            for admit in self.by_claim.values()
            if admit.at_ms <= until_ms and admit.at_ms // part_ms >= oldest
        ]

    def use(self, kind: str, most: int, window_ms: int, until_ms: float) -> float:
        """Of what could have been admitted in all full turns of the window, the share that was."""
        turn_ms = window_ms * (PARTS + 1) / PARTS
        began_ms = self.all()[0].at_ms
        turns = int((until_ms - began_ms) / turn_ms)
        admitted = sum(
            admit.charge(kind)
            for admit in self.by_claim.values()
            if admit.at_ms < began_ms + turns * turn_ms
        )
        return admitted / (turns * most)

    def _run(self) -> None:
        with self._redis.monitor() as monitor:
            self._is_listening.set()
            for said in monitor.listen():
                command = said["command"]
                if command == "ECHO enough":
                    return
                if self._tag not in command:
                    continue
                if said["client_type"] == "lua":
                    self._hear_grant(command)
                elif command.startswith("EVAL"):
                    self._hear_end(command)

    def _hear_grant(self, command: str) -> None:
        grant = _GRANTED.search(command)
        if grant and grant[1] not in self.by_claim:
            admit = Admit(grant[2], int(grant[6]), int(grant[4]), int(grant[5]))
            self.by_claim[grant[1]] = admit
            self.log.append((grant[1], False))

    def _hear_end(self, command: str) -> None:
        ended = _ENDED.search(command) or _UNDONE.search(command)
        if ended and ended[1] in self.by_claim:
            self.by_claim[ended[1]].used = ended[2]
            self.log.append((ended[1], True))
