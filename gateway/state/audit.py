"""All keys of a namespace by family: how many, how large, and whether each dies in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from gateway.state.keys import LASTING_KINDS, Keys
from gateway.state.look import Server

PAGE = 500
SAMPLE = 1_000
"""Keys of a family whose size is asked for; the rest is reckoned to be like them."""
LARGE_BYTES = 1024 * 1024
_EITHER = frozenset({"limits"})
"""Kinds that may or may not last: a budget for good makes its key stay."""
_STRANGE = "not ours"
_NONE, _GONE = -1, -2
"""What PTTL says of a key without a TTL, and of one that is not there."""


class Family(Struct, kw_only=True):
    """Keys of one kind."""

    name: str
    keys: int = 0
    bytes: int = 0
    """Of all together, as far as Redis tells; reckoned from a sample where there are many."""
    largest: str = ""
    largest_bytes: int = 0
    """Of the keys whose size was asked for."""
    lasting: int = 0
    """Keys without a TTL."""
    problems: int = 0
    """Keys that have none and should, or have one and should not."""
    example: str = ""
    """One of these."""


async def audit(server: Server, keys: Keys) -> list[Family] | None:
    """Go through all keys; those that come or go meanwhile may be missing.

    `None` where that may not be done. Raises `StateUnavailable`.
    """
    families: dict[str, Family] = {}
    sampled: dict[str, list[int]] = {}
    async for page in _pages(server, keys.namespace):
        if page is None:
            return None
        ttls = await asyncio.gather(*(server.ask("PTTL", key) for key in page))
        for key, ttl_ms in zip(page, ttls, strict=True):
            if ttl_ms == _GONE:
                continue
            read = keys.read(key)
            name = read.family if read else _STRANGE
            family = families.setdefault(name, Family(name=name))
            family.keys += 1
            family.lasting += ttl_ms == _NONE
            if read is None or not _is_right(read.kind, ttl_ms):
                family.problems += 1
                family.example = key
            sizes = sampled.setdefault(name, [])
            if len(sizes) < SAMPLE:
                size = int(await server.ask("MEMORY", "USAGE", key) or 0)
                sizes.append(size)
                if size > family.largest_bytes:
                    family.largest, family.largest_bytes = key, size
    for name, family in families.items():
        sizes = sampled[name]
        family.bytes = round(sum(sizes) * family.keys / len(sizes))
    return sorted(families.values(), key=lambda family: family.name)


def problems_of(families: Sequence[Family]) -> list[str]:
    """What an operator ought to see to."""
    found: list[str] = []
    for one in families:
        if one.name == _STRANGE:
            found.append(f"{one.keys} keys are not ours, such as {one.example}: who writes them?")
        elif one.problems:
            what = "have a TTL and will be lost" if _lasts(one.name) else "have no TTL and stay"
            found.append(f"{one.problems} keys of {one.name} {what}, such as {one.example}")
        if one.largest_bytes > LARGE_BYTES:
            size = f"{one.largest_bytes / LARGE_BYTES:.1f} MiB"
            found.append(f"{one.largest} has {size}: scripts that read it keep others waiting")
    return found


async def _pages(server: Server, namespace: str) -> AsyncIterator[list[str] | None]:
    cursor = ""
    while cursor != "0":
        page = await server.ask("SCAN", cursor or "0", "MATCH", f"{namespace}:*", "COUNT", PAGE)
        if page is None:
            yield None
            return
        cursor = str(page[0])
        yield list(page[1])


def _is_right(kind: str, ttl_ms: int) -> bool:
    return kind in _EITHER or (kind in LASTING_KINDS) == (ttl_ms == _NONE)


def _lasts(family: str) -> bool:
    return family.rpartition(":")[2] in LASTING_KINDS
