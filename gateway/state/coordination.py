"""What the coordinator has put into Redis, as everybody reads it.

A published value is words, `name=value`, behind the epoch that it was written under and its time.
Whatever somebody has edited into nonsense is not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from msgspec import Struct

from gateway.state.keys import encode_id
from gateway.state.replies import CoordinatorReply

PROBE = "probe:"
"""What the names of health probes' results begin with; an address follows."""
_PUBLISHED = re.compile(r"epoch=(\d{1,15}) at_ms=(\d{1,15}) (.*)", re.DOTALL)
_COUNT = re.compile(r"\d{1,15}", re.ASCII)


class Published(Struct, frozen=True, kw_only=True):
    """A value that a coordinator has published."""

    epoch: int
    """Of its writer."""
    at_ms: int
    """When, by the clock of Redis."""
    words: Mapping[str, str]


class ProbeResult(Struct, frozen=True, kw_only=True):
    """What the last health probe of an address has found."""

    healthy: bool
    status: int | None
    """HTTP status of the answer, if there was one."""
    error: str | None
    """Why there was none: a short name."""
    latency_ms: int
    failures: int
    """Failed probes in a row."""
    checked_ms: int
    """When, by the clock of Redis."""
    age_ms: int
    """How long ago that is."""


class Coordination(Struct, frozen=True, kw_only=True):
    """The lease, whoever has it or had it last, and all that is published."""

    now_ms: int
    holder: str
    """Empty when there has never been one."""
    epoch: int
    until_ms: int
    """By the clock of Redis; past when nobody leads."""
    about: Mapping[str, str]
    """host, version, config: of the holder."""
    published: Mapping[str, Published]

    @property
    def is_led(self) -> bool:
        """Whether somebody has the lease now."""
        return self.until_ms > self.now_ms

    def ages_ms(self) -> dict[str, int]:
        """How old each published value is; of health probes, under one name, the oldest one."""
        ages: dict[str, int] = {}
        for name, value in self.published.items():
            group = "probes" if name.startswith(PROBE) else name
            ages[group] = max(ages.get(group, 0), self.now_ms - value.at_ms)
        return ages

    def probes(self) -> dict[str, ProbeResult]:
        """Address to what the last health probe has found there."""
        return {
            unquote(name.removeprefix(PROBE)): read_probe(value, self.now_ms)
            for name, value in self.published.items()
            if name.startswith(PROBE)
        }


def read_coordination(reply: CoordinatorReply) -> Coordination:
    """Read what the script answers."""
    lease = _pairs(reply.lease)
    published: dict[str, Published] = {}
    for name, text in _pairs(reply.published).items():
        if match := _PUBLISHED.fullmatch(text):
            epoch, at_ms, words = match.groups()
            published[name] = Published(epoch=int(epoch), at_ms=int(at_ms), words=_words(words))
    until_ms = _count(lease.get("until_ms"))
    return Coordination(
        now_ms=reply.now_ms,
        holder=lease.get("holder", ""),
        epoch=_count(lease.get("epoch")),
        until_ms=until_ms if until_ms <= reply.now_ms + _count(lease.get("lease_ms")) else 0,
        about=_words(lease.get("about", "")),
        published=published,
    )


def probe_name(address: str) -> str:
    """Under which name an address's health is published."""
    return PROBE + encode_id(address)


def write_probe(
    *, healthy: bool, status: int | None, error: str | None, latency_ms: int, failures: int
) -> str:
    """Spell a probe's result; `read_probe` reads it."""
    words = f"healthy={int(healthy)} latency_ms={latency_ms} failures={failures}"
    if status is not None:
        words += f" status={status}"
    if error is not None:
        words += f" error={encode_id(error)}"
    return words


def read_probe(value: Published, now_ms: int) -> ProbeResult:
    """Read what `write_probe` has spelt."""
    words = value.words
    return ProbeResult(
        healthy=words.get("healthy") == "1",
        status=_count(words.get("status")) or None,
        error=unquote(words["error"]) if "error" in words else None,
        latency_ms=_count(words.get("latency_ms")),
        failures=_count(words.get("failures")),
        checked_ms=value.at_ms,
        age_ms=max(now_ms - value.at_ms, 0),
    )


def _pairs(fields: Sequence[str]) -> dict[str, str]:
    return dict(zip(fields[::2], fields[1::2], strict=True))


def _words(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def _count(text: str | None) -> int:
    return int(text) if text and _COUNT.fullmatch(text) else 0
