"""Keys made at run time, as a replica knows them: asked of Redis, remembered for seconds.

A key is asked for at most once in `FRESH_S`, so that a change holds everywhere within that time.
While Redis is away, what it has answered last holds for `AWAY_S`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import string
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from msgspec import Struct

from gateway.config.result import KeyRecord
from gateway.errors import StateUnavailable
from gateway.state.key_store import MadeKey

FRESH_S = 5.0
AWAY_S = 60.0
MOST = 10_000
"""Keys, and strangers, that are remembered."""
PREFIX = "sk-concord-"
_ALPHABET = string.digits + string.ascii_letters
_RANDOM = 43
"""Characters that make 256 bits."""
_FORM = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_RANDOM}}}")

T = TypeVar("T")


def new_secret() -> str:
    """A key that nobody has, and nobody can guess."""
    return PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))


def may_be_made(key: str) -> bool:
    """Whether a key has the form of those that are made. Others need not be asked for."""
    return _FORM.fullmatch(key) is not None


class Reader(Protocol):
    """Where made keys are kept."""

    async def of_digest(self, digest: str) -> MadeKey | None:
        """Read a key by its SHA-256. MUST raise `StateUnavailable` when it cannot be known."""
        ...


class _Known(Struct, frozen=True):
    record: KeyRecord
    asked_s: float


class MadeKeys:
    """Finds made keys; bounded, whatever is asked for."""

    def __init__(
        self,
        store: Reader,
        *,
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST,
    ) -> None:
        self._store = store
        self._clock = clock
        self._most = most
        self._known: dict[str, _Known] = {}
        self._strangers: dict[str, float] = {}
        """Digests that no key has, and when they were asked for. Apart, so that a flood of wrong
        keys makes nobody forget a right one."""
        self._asking: dict[str, asyncio.Task[KeyRecord | None]] = {}

    async def find(self, digest: str) -> KeyRecord | None:
        """The key whose secret has this SHA-256; `None` when there is none.

        Raises `StateUnavailable` when that cannot be known.
        """
        now = self._clock()
        known = self._known.get(digest)
        if known and now - known.asked_s < FRESH_S:
            return known.record
        if now - self._strangers.get(digest, -FRESH_S) < FRESH_S:
            return None
        try:
            return await asyncio.shield(self._asked(digest))
        except StateUnavailable:
            if known and now - known.asked_s < AWAY_S:
                return known.record
            raise

    def _asked(self, digest: str) -> asyncio.Task[KeyRecord | None]:
        """The question under way, which requests that come meanwhile share, or a new one."""
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = asyncio.create_task(self._ask(digest))
            asking.add_done_callback(lambda task: self._ended(digest, task))
        return asking

    def _ended(self, digest: str, task: asyncio.Task[KeyRecord | None]) -> None:
        del self._asking[digest]
        if not task.cancelled():
            task.exception()  # whoever asked may have gone

    async def _ask(self, digest: str) -> KeyRecord | None:
        asked_s = self._clock()
        found = await self._store.of_digest(digest)
        self._known.pop(digest, None)
        self._strangers.pop(digest, None)
        if found is None:
            self._remember(self._strangers, digest, asked_s)
            return None
        self._remember(self._known, digest, _Known(found.record, asked_s))
        return found.record

    def _remember(self, table: dict[str, T], digest: str, value: T) -> None:
        """Put it last; the one asked for longest ago makes room."""
        if len(table) >= self._most:
            del table[next(iter(table))]
        table[digest] = value
