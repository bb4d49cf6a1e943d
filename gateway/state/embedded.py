"""The embedded store: Redis inside the process, for a first look where there is no Redis.

Single-process, slow and not durable. Scripts run on it unchanged but for the shebang.
"""

from __future__ import annotations

from fakeredis import FakeAsyncRedis
from redis.asyncio import Redis


def make_embedded() -> Redis:
    """A client of a fresh store that lives as long as it does."""
    return FakeAsyncRedis(version=(6, 2), decode_responses=True)
