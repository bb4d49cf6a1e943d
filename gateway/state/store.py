"""The store: one method per script, plain values in, Structs out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct, structs

from gateway.core.outcome import Outcome
from gateway.state.keys import Keys, encode_id


class Policy(Struct, frozen=True, kw_only=True):
    """When an endpoint's circuit opens and for how long (`circuit:` in the config)."""

    failure_threshold: int = 3
    cooldown_ms: int = 30_000
    min_availability: float = 0.7
    ewma_alpha: float = 0.1


class AdmitReply(Struct, frozen=True, array_like=True):
    """What `admit` decided. `drawn` is how many of the request's numbers the draw has used."""

    status: str
    location: str
    probe: int
    inflight: int
    drawn: int
    retry_after_ms: int
    reasons: str

    @property
    def is_admitted(self) -> bool:
        """Whether there is a claim."""
        return self.status == "admitted"

    @property
    def is_short(self) -> bool:
        """Whether nothing was decided, for the draw has used up its numbers."""
        return self.status == "short"

    def refused(self) -> dict[str, str]:
        """Location to reason, of the endpoints that were looked at and struck out."""
        pairs = (word.rpartition("=") for word in self.reasons.split())
        return {unquote(location): reason for location, _, reason in pairs}


class RecordReply(Struct, frozen=True, array_like=True):
    """What `first_token` or `settle` did, and whether it turned the circuit."""

    status: str
    circuit: str


class RenewReply(Struct, frozen=True, array_like=True):
    """The claims that the store does not know, separated by spaces."""

    status: str
    unknown: str


class StatusReply(Struct, frozen=True, array_like=True):
    """A bare status."""

    status: str


class CountReply(Struct, frozen=True, array_like=True):
    """A status and a number."""

    status: str
    count: int


class RowsReply(Struct, frozen=True, array_like=True):
    """Fields and values of the endpoints hash, in turn."""

    status: str
    fields: list[str]


class Runner(Protocol):
    """Runs scripts by name."""

    async def run(self, name: str, keys: dict[str, str], args: dict[str, str | int]) -> list[Any]:
        """Run one script. MUST be repeatable, and MUST raise `StateUnavailable` or `ScriptBug`."""
        ...


R = TypeVar("R", bound=Struct)


class Store:
    """The cluster's shared state. Every method is one atomic step and may be repeated.

    Each raises `StateUnavailable` when Redis is away and `ScriptBug` on a fault of our own.
    """

    def __init__(self, runner: Runner, keys: Keys, policy: Policy) -> None:
        self._runner = runner
        self._keys = keys
        self._policy = policy

    async def admit(
        self,
        model_id: str,
        *,
        claim: str,
        candidates: Sequence[tuple[str, float]],
        tried: Sequence[str],
        order: str,
        draws: Sequence[float],
        lease_ms: int,
    ) -> AdmitReply:
        """Choose among candidates (location, weight > 0) and claim room on the chosen one.

        Those `tried` already are struck out. `order` is `draw`, `declared` or `pinned`; for `draw`
        one number per candidate is needed, or fewer: then the answer may be short of them.
        """
        reply = await self._call(
            AdmitReply,
            "admit",
            self._keys.model(model_id),
            claim=claim,
            candidates=_packed(tuple(candidates)),
            tried=" ".join(map(encode_id, tried)),
            order=order,
            draws=" ".join(f"{number:.17g}" for number in draws),
            lease_ms=lease_ms,
            failure_threshold=self._policy.failure_threshold,
            cooldown_ms=self._policy.cooldown_ms,
        )
        return structs.replace(reply, location=unquote(reply.location))

    async def first_token(self, model_id: str, *, claim: str) -> RecordReply:
        """Record an attempt's first output, its success."""
        return await self._call(
            RecordReply,
            "first_token",
            self._keys.model(model_id),
            claim=claim,
            ewma_alpha=f"{self._policy.ewma_alpha:.17g}",
        )

    async def settle(
        self,
        model_id: str,
        *,
        claim: str,
        location: str,
        outcome: Outcome,
        status: int,
        live_replicas: int,
    ) -> RecordReply:
        """End a claim and record how its attempt ended; `status` 0 is none."""
        return await self._call(
            RecordReply,
            "settle",
            self._keys.model(model_id),
            claim=claim,
            location=encode_id(location),
            outcome=outcome.value,
            status=status,
            live_replicas=live_replicas,
            failure_threshold=self._policy.failure_threshold,
            cooldown_ms=self._policy.cooldown_ms,
            min_availability=f"{self._policy.min_availability:.17g}",
            ewma_alpha=f"{self._policy.ewma_alpha:.17g}",
        )

    async def renew(self, model_id: str, *, claims: Sequence[str], lease_ms: int) -> list[str]:
        """Lengthen leases, at most 128 per call. Returns the ids that the store does not know."""
        reply = await self._call(
            RenewReply,
            "renew",
            self._keys.model(model_id),
            ids=" ".join(claims),
            lease_ms=lease_ms,
        )
        return reply.unknown.split()

    async def reassert(
        self, model_id: str, *, claim: str, location: str, lease_ms: int, first: bool
    ) -> bool:
        """Put back a claim that the store has lost. Returns whether it had to."""
        reply = await self._call(
            StatusReply,
            "reassert",
            self._keys.model(model_id),
            claim=claim,
            location=encode_id(location),
            lease_ms=lease_ms,
            first=int(first),
        )
        return reply.status == "done"

    async def reap(self, model_id: str, *, limit: int = 128) -> int:
        """End expired claims of a model. Returns how many."""
        reply = await self._call(CountReply, "reap", self._keys.model(model_id), limit=limit)
        return reply.count

    async def beat_replica(self, replica: str, *, about: str, ttl_ms: int) -> int:
        """Say that a replica lives (`about` empty: that it leaves). Returns how many do."""
        reply = await self._call(
            CountReply,
            "beat_replica",
            self._keys.cluster(),
            replica=replica,
            about=about,
            ttl_ms=ttl_ms,
        )
        return reply.count

    async def rows(self, model_id: str) -> dict[str, dict[str, str]]:
        """Read everything live about a model's endpoints: location -> what -> text."""
        reply = await self._call(RowsReply, "rows", self._keys.model(model_id))
        rows: dict[str, dict[str, str]] = {}
        for name, value in zip(reply.fields[::2], reply.fields[1::2], strict=True):
            location, colon, what = name.rpartition(":")
            if colon:
                rows.setdefault(unquote(location), {})[what] = value
        return rows

    async def _call(self, shape: type[R], name: str, keys: dict[str, str], **args: str | int) -> R:
        return msgspec.convert(await self._runner.run(name, keys, args), shape)


@lru_cache(maxsize=4096)
def _packed(candidates: tuple[tuple[str, float], ...]) -> str:
    """The candidate table as `admit` takes it. The same one comes with almost every call."""
    return " ".join(f"{encode_id(at)} {weight:.17g}" for at, weight in candidates)
