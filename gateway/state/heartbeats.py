"""What replicas say of themselves with their heartbeats."""

from __future__ import annotations

from urllib.parse import unquote

from msgspec import Struct

from gateway.state.replies import ReplicasReply


class Heartbeat(Struct, frozen=True, kw_only=True):
    """A replica that has said that it lives."""

    id: str
    host: str
    seen_ms: int
    """When, by the clock of Redis."""
    silent_ms: int
    """How long ago that is."""
    config_digest: str
    version: str
    secret_mark: str
    """The same on replicas that know callers by the same names; empty where that is not told."""


def read_heartbeats(
    reply: ReplicasReply, *, ttl_ms: float
) -> tuple[list[Heartbeat], list[Heartbeat]]:
    """Tell those that live from those that have stopped saying so without taking leave."""
    pairs = zip(reply.fields[::2], reply.fields[1::2], strict=True)
    known = sorted(
        (_read(id, about, reply.now_ms) for id, about in pairs),
        key=lambda one: (one.host, one.id),
    )
    live = [one for one in known if one.silent_ms < ttl_ms]
    return live, [one for one in known if one not in live]


def _read(id: str, about: str, now_ms: int) -> Heartbeat:
    words = dict(word.split("=", 1) for word in about.split() if "=" in word)
    seen = words.get("seen_ms", "")
    seen_ms = int(seen) if seen.isdecimal() else 0
    return Heartbeat(
        id=id,
        host=unquote(words.get("host", "")),
        seen_ms=seen_ms,
        silent_ms=abs(now_ms - seen_ms),
        config_digest=words.get("config", ""),
        version=words.get("version", ""),
        secret_mark=words.get("secret", ""),
    )
