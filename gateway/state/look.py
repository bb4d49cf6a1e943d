"""A look at the Redis server: whether state is safe there, and what takes it long.

What the server does not tell, as where an ACL keeps it from us, is `None` and no warning.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gateway.state.server import is_throwaway

OLDEST = (6, 2)
"""The oldest Redis that is tested with."""
FULL = 0.9
"""The part of its memory above which a store is about to refuse work."""
MOST_SKEW_MS = 1_000
SLOW_MS = 5
"""A script takes tens of microseconds."""
LATELY_S = 3_600
_ENTRIES = 128


class Server(Protocol):
    """A store that tells of itself."""

    async def info(self) -> Mapping[str, str]:
        """What INFO says, empty where the server does not tell. Raises `StateUnavailable`."""
        ...

    async def ask(self, *command: str | int) -> Any:
        """Answer a question, `None` where it may not be put. Raises `StateUnavailable`."""
        ...

    def script_of(self, digest: str) -> str | None:
        """Name the script that Redis knows by a digest."""
        ...


class SlowScript(Struct, frozen=True, kw_only=True):
    """A script that has taken long lately, more than `SLOW_MS`."""

    name: str
    """Its digest, where that is of no script of this release."""
    times: int
    longest_ms: float


class Look(Struct, frozen=True, kw_only=True):
    """The store; `None` is what it does not tell."""

    version: str | None
    policy: str | None
    """What it does when it is full: `maxmemory-policy`."""
    persistence: str | None
    """`aof`, or `no aof`."""
    is_throwaway: bool
    """Whether it is private to a `concord up`, and not meant to outlive it."""
    memory_bytes: int | None
    max_memory_bytes: int | None
    """`None` also where there is no limit."""
    failed: Sequence[str]
    """What it could not write to disk the last time: `snapshot`, `AOF`."""
    ahead_ms: int | None
    """How far its clock is ahead of this host's, as far as the way there lets one tell."""
    slow_scripts: Sequence[SlowScript] | None
    """Of the last hour."""

    def warnings(self) -> list[str]:
        """What an operator ought to see to."""
        found: list[str] = []
        if self.version and _numbers(self.version) < OLDEST:
            found.append(f"Redis {self.version} is older than 6.2")
        if self.policy and self.policy != "noeviction":
            found.append(
                f"maxmemory-policy is {self.policy}: state may vanish without an error; "
                "it must be noeviction"
            )
        if self.max_memory_bytes and (self.memory_bytes or 0) > FULL * self.max_memory_bytes:
            found.append(f"Redis uses more than {FULL:.0%} of its maxmemory")
        if self.persistence == "no aof" and not self.is_throwaway:
            found.append(
                "Redis keeps no append-only file: run-time overrides and made keys, which are "
                "nowhere else, are lost when it goes; set appendonly yes"
            )
        found += [f"the last {what} of Redis failed: it may refuse writes" for what in self.failed]
        if self.ahead_ms is not None and abs(self.ahead_ms) > MOST_SKEW_MS:
            side = "ahead of" if self.ahead_ms > 0 else "behind"
            found.append(
                f"the clock of Redis is {abs(self.ahead_ms) / 1000:.1f} s {side} this host's: "
                "times in logs and in Redis differ by that; set one of them right"
            )
        for one in self.slow_scripts or ():
            found.append(
                f"the script {one.name} took up to {one.longest_ms:.0f} ms in the last hour, "
                f"{one.times} times more than {SLOW_MS} ms: all others waited meanwhile"
            )
        return found


async def look_at(server: Server) -> Look:
    """Ask the server. Raises `StateUnavailable`."""
    info = await server.info()
    sent_s = time.time()
    told = await server.ask("TIME")
    middle_s = (sent_s + time.time()) / 2
    server_s = int(told[0]) + int(told[1]) / 1e6 if told else None
    entries = await server.ask("SLOWLOG", "GET", _ENTRIES)
    return Look(
        version=info.get("redis_version"),
        policy=info.get("maxmemory_policy"),
        persistence={"1": "aof", "0": "no aof"}.get(info.get("aof_enabled", "")),
        is_throwaway=is_throwaway(info.get("config_file", "")),
        memory_bytes=_whole(info.get("used_memory")),
        max_memory_bytes=_whole(info.get("maxmemory")) or None,
        failed=[
            what
            for name, what in (
                ("rdb_last_bgsave_status", "snapshot"),
                ("aof_last_write_status", "AOF"),
            )
            if info.get(name, "ok") != "ok"
        ],
        ahead_ms=None if server_s is None else round((server_s - middle_s) * 1000),
        slow_scripts=None if entries is None else _slow(server, entries, server_s or middle_s),
    )


def _slow(server: Server, entries: Sequence[Any], now_s: float) -> list[SlowScript]:
    """The scripts in entries of the slow log, `[number, at_s, us, [word, ...], ...]`."""
    times: Counter[str] = Counter()
    longest_us: Counter[str] = Counter()
    for _, at_s, took_us, words, *_ in entries:
        is_script = len(words) > 1 and str(words[0]).upper() == "EVALSHA"
        if is_script and took_us > SLOW_MS * 1000 and now_s - at_s < LATELY_S:
            name = server.script_of(str(words[1])) or str(words[1])
            times[name] += 1
            longest_us[name] = max(longest_us[name], took_us)
    return [
        SlowScript(name=name, times=count, longest_ms=longest_us[name] / 1000)
        for name, count in times.most_common()
    ]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
