"""Made keys, in memory."""

from __future__ import annotations

from collections import Counter

from gateway.auth.made import MadeKeys
from gateway.config.result import KeyRecord
from gateway.errors import StateUnavailable
from gateway.state.key_store import MadeKey
from tests.fakes.holds import Hold


class MemoryKeys:
    """A store of made keys that can be away, and counts how often it is asked."""

    def __init__(self, *records: KeyRecord) -> None:
        self.records = {record.key_sha256: record for record in records}
        self.asked: Counter[str] = Counter()
        self.is_away = False
        self.hold: Hold | None = None

    async def of_digest(self, digest: str) -> MadeKey | None:
        """Read a key."""
        self.asked[digest] += 1
        if self.hold:
            await self.hold.wait()
        if self.is_away:
            raise StateUnavailable
        record = self.records.get(digest)
        return MadeKey(record=record) if record else None


def no_made_keys() -> MadeKeys:
    """As where no key has ever been made."""
    return MadeKeys(MemoryKeys())
