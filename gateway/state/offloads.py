"""The last requests that have gone to an offload route, as operators look at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from gateway.state.keys import Keys, encode_id
from gateway.state.replies import Reply, StatusReply
from gateway.state.store import Runner
from gateway.telemetry.access import RequestRecord

MOST = 10_000
DAY_MS = 86_400_000
KEPT_MS = 7 * DAY_MS


class Offloaded(Struct, frozen=True, kw_only=True):
    """What is kept of one: nothing that its client has sent."""

    request_id: str
    model: str
    reason: str
    offload_endpoint: str
    endpoint: str
    """That was asked last."""
    attempts: Sequence[str]
    """`<endpoint>`, or `<endpoint>=<error type>` of one that has failed, in turn."""
    total_ms: float
    at_ms: int = 0
    """When it ended, in Unix time."""

    @classmethod
    def of(cls, record: RequestRecord) -> Offloaded:
        """What the record of a request comes to, when it has ended."""
        return cls(
            request_id=record.request_id,
            model=record.model or "",
            reason=record.offload or "",
            offload_endpoint=record.offload_endpoint or "",
            endpoint=record.endpoint or "",
            attempts=[
                f"{one.endpoint}={one.error_type}" if one.error_type else one.endpoint
                for one in record.attempts
            ],
            total_ms=record.elapsed_ms(),
        )

    def words(self) -> str:
        """Spell it, `name=value`."""
        attempts = ",".join(encode_id(one) for one in self.attempts)
        return (
            f"request={encode_id(self.request_id)} model={encode_id(self.model)} "
            f"reason={self.reason} offload={encode_id(self.offload_endpoint)} "
            f"endpoint={encode_id(self.endpoint)} attempts={attempts} total_ms={self.total_ms:g}"
        )

    @classmethod
    def read(cls, text: str, at_ms: int) -> Offloaded:
        """Read the words; what is missing is empty."""
        words = dict(word.partition("=")[::2] for word in text.split())

        def word(name: str) -> str:
            return unquote(words.get(name, ""))

        return cls(
            request_id=word("request"),
            model=word("model"),
            reason=word("reason"),
            offload_endpoint=word("offload"),
            endpoint=word("endpoint"),
            attempts=[unquote(one) for one in words.get("attempts", "").split(",") if one],
            total_ms=float(words.get("total_ms", "0")),
            at_ms=at_ms,
        )


class OffloadsReply(Reply, frozen=True, array_like=True):
    """Words about requests and when they ended, in turn."""

    found: list[Any]


class OffloadLog:
    """Keeps and tells them. Each method raises `StateUnavailable`."""

    def __init__(self, runner: Runner, keys: Keys) -> None:
        self._runner = runner
        self._keys = keys

    async def note(self, offloaded: Offloaded) -> None:
        """Keep one."""
        args: dict[str, str | int] = {
            "words": offloaded.words(),
            "most": MOST,
            "ttl_ms": KEPT_MS,
        }
        reply = await self._runner.run("note_offload", self._keys.cluster(), args)
        msgspec.convert(reply, StatusReply)

    async def last(self, *, within_ms: int, most: int = 1000) -> list[Offloaded]:
        """The latest first."""
        args: dict[str, str | int] = {"within_ms": within_ms, "most": most}
        reply = await self._runner.run("offloads", self._keys.cluster(), args)
        found = msgspec.convert(reply, OffloadsReply).found
        pairs = zip(found[::2], found[1::2], strict=True)
        return [Offloaded.read(str(words), int(float(at))) for words, at in pairs]
