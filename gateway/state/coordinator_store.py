"""The coordinator's side of the store: its lease, and what it writes under it.

One method per script. Every write carries the epoch of the lease, and what it is written to refuses
an older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import msgspec

from gateway.core.profile import Profile
from gateway.state.keys import Keys, encode_id
from gateway.state.outcomes import Ended, write_ended
from gateway.state.policy import Policy
from gateway.state.profiles import write_profile
from gateway.state.replies import RecordReply, Reply, StatusReply
from gateway.state.store import Runner


class Fenced(Exception):
    """A newer leader has been there: this one's time is over."""


class LeaseReply(Reply, frozen=True, array_like=True):
    """Who has the lease now: `held` by the caller, `taken` by another, or `left`."""

    epoch: int
    holder: str
    left_ms: int

    @property
    def is_held(self) -> bool:
        """Whether the caller has it."""
        return self.status == "held"


class PublishReply(Reply, frozen=True, array_like=True):
    """When a value was put down, by the clock of Redis."""

    at_ms: int


class OutcomesReply(Reply, frozen=True, array_like=True):
    """Ids and words of outcomes, in turn."""

    outcomes: list[str]


class TidyReply(Reply, frozen=True, array_like=True):
    """How many expired claims were ended, and how many fields forgotten."""

    ended: int
    forgotten: int


R = TypeVar("R", bound=Reply)
ProbeOutcome = Literal["passed", "failed", "connect"]
"""What a health probe says of a circuit (`lua/record_probe.lua`)."""


class CoordinatorStore:
    """What only a coordinator does. Every method is one atomic step and may be repeated.

    Each raises `StateUnavailable` when Redis is away, `ScriptBug` on a fault of our own, and those
    that take an epoch `Fenced` when that is no longer the newest.
    """

    def __init__(self, runner: Runner, keys: Keys) -> None:
        self._runner = runner
        self._keys = keys

    async def lease(self, holder: str, *, epoch: int, lease_ms: int, about: str) -> LeaseReply:
        """Take the lease or lengthen it; `epoch` is the highest that the holder knows of, or 0."""
        args: dict[str, str | int] = {
            "holder": holder,
            "epoch": epoch,
            "lease_ms": lease_ms,
            "about": about,
        }
        return await self._call(LeaseReply, "lease", self._keys.cluster(), args)

    async def leave(self, holder: str) -> None:
        """Give the lease up, if the caller has it."""
        await self.lease(holder, epoch=0, lease_ms=0, about="")

    async def publish(self, epoch: int, what: str, value: str) -> int:
        """Put a value down, words as `name=value`; an empty one takes it back.

        Returns when that was, by the clock of Redis.
        """
        args: dict[str, str | int] = {"epoch": epoch, "what": what, "value": value}
        return (await self._call(PublishReply, "publish", self._keys.cluster(), args)).at_ms

    async def read_outcomes(
        self, epoch: int, model_id: str, *, reader: str, start: str, limit: int = 1000
    ) -> list[tuple[str, str]]:
        """Read how attempts have ended, id and words (`lua/lib/outcomes.lua`), oldest first.

        `start` is `next`, `pending` for what was read and is in no profile yet, or an id after
        which to read anew.
        """
        args: dict[str, str | int] = {
            "epoch": epoch,
            "reader": reader,
            "from": start,
            "limit": limit,
        }
        keys = self._keys.model(model_id)
        found = (await self._call(OutcomesReply, "read_outcomes", keys, args)).outcomes
        return list(zip(found[::2], found[1::2], strict=True))

    async def note_probe(self, epoch: int, model_id: str, ended: Ended, *, keep: int) -> None:
        """Keep how a probe has ended, among about so many outcomes."""
        args: dict[str, str | int] = {"epoch": epoch, "words": write_ended(ended), "keep": keep}
        await self._call(StatusReply, "note_probe", self._keys.model(model_id), args)

    async def publish_profile(
        self, epoch: int, model_id: str, profile: Profile, *, read: Sequence[str]
    ) -> int:
        """Put down what has been learned of a model; `read` are the outcomes that are new in it.

        Returns when that was, by the clock of Redis.
        """
        args: dict[str, str | int] = {
            "epoch": epoch,
            "value": write_profile(profile),
            "read": " ".join(read),
        }
        keys = self._keys.model(model_id)
        return (await self._call(PublishReply, "publish_profile", keys, args)).at_ms

    async def record_probe(
        self,
        epoch: int,
        model_id: str,
        *,
        prober: str,
        location: str,
        outcome: ProbeOutcome,
        live_replicas: int,
        policy: Policy,
    ) -> str:
        """Have a health probe count for a circuit. Returns `opened`, `closed`, or nothing."""
        args: dict[str, str | int] = {
            "epoch": epoch,
            "prober": prober,
            "location": encode_id(location),
            "outcome": outcome,
            "live_replicas": live_replicas,
            "rules": policy.to_record,
        }
        keys = self._keys.model(model_id)
        return (await self._call(RecordReply, "record_probe", keys, args)).circuit

    async def tidy_model(
        self,
        epoch: int,
        model_id: str,
        *,
        locations: Iterable[str] | None,
        replicas: Iterable[str],
        limit: int = 128,
    ) -> TidyReply:
        """End expired claims, and forget what is not of `locations` or live replicas.

        Without locations the model is not configured, and with its last claim all of it goes.
        `None` is when it is not certain which there are: none is forgotten.
        """
        args: dict[str, str | int] = {
            "epoch": epoch,
            "locations": "*" if locations is None else " ".join(map(encode_id, locations)),
            "replicas": " ".join(replicas),
            "limit": limit,
        }
        return await self._call(TidyReply, "tidy_model", self._keys.model(model_id), args)

    async def drop_stale_pin(
        self, epoch: int, model_id: str, *, caller: str, location: str
    ) -> bool:
        """Forget a pin if it still leads there. Returns whether it did."""
        keys = self._keys.caller(model_id, caller)
        args: dict[str, str | int] = {"epoch": epoch, "location": encode_id(location)}
        return (await self._call(StatusReply, "drop_stale_pin", keys, args)).status == "done"

    async def _call(
        self, shape: type[R], name: str, keys: dict[str, str], args: dict[str, str | int]
    ) -> R:
        reply = msgspec.convert(await self._runner.run(name, keys, args), shape)
        if reply.status == "fenced":
            raise Fenced(name)
        return reply
