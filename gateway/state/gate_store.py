"""The gates' side of the store: places, and lines for them. One method per script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from gateway.core.gate import Gate
from gateway.state.grants import Channels
from gateway.state.keys import Keys
from gateway.state.replies import Reply, StatusReply
from gateway.state.store import Runner


class EnterReply(Reply, frozen=True, array_like=True):
    """Whether there is a place (`held`), a number in line (`waiting`) or neither (`full`)."""

    number: int
    """In line; 0 for who went straight through."""
    granted: str
    """Tickets of the caller's that have got a place by this, as in all answers below."""


class ConfirmReply(Reply, frozen=True, array_like=True):
    """Whether the place is ours (`held`), has gone on (`waiting`), or nothing is known (`gone`)."""

    number: int


class PollReply(Reply, frozen=True, array_like=True):
    """What a replica may have missed."""

    granted: str
    unknown: str
    """Tickets that stand in line no more."""
    restored: int
    """How many places the store had lost."""


class LeaveReply(Reply, frozen=True, array_like=True):
    """What became of the limit."""

    granted: str
    reason: str
    """Why an operator is to be told: `429`, `429_reverted_probe`, `probe`, or nothing."""
    old_limit: int
    new_limit: int
    in_flight: int
    waiting: int


class GateReply(Reply, frozen=True, array_like=True):
    """How full a gate is."""

    limit: int
    in_flight: int
    waiting: int
    aside: int
    """Waiting, but their replica is not heard of."""
    successes: int
    """Since the limit was changed last."""
    probing: int
    """1 while the last rise has not been answered by a 429."""


R = TypeVar("R", bound=Reply)
Args = dict[str, str | int]


class GateStore:
    """Gates. Every method is one atomic step, and may be repeated.

    Each raises `StateUnavailable` when Redis is away and `ScriptBug` on a fault of our own.
    """

    def __init__(self, runner: Runner, keys: Keys, channels: Channels) -> None:
        self._runner = runner
        self._keys = keys
        self._channels = channels

    async def enter(self, gate: Gate, *, ticket: str, wait: str, lease_ms: int) -> EnterReply:
        """Take a place, or where there is none a number in line.

        `wait` is `line`; or `no`, to leave at once; or `over`, to take one over the limit.
        """
        args: Args = {"ticket": ticket, "lease_ms": lease_ms, "wait": wait}
        return await self._call(EnterReply, "gate_enter", gate, args | self._to_hand_on(gate))

    async def confirm(self, gate: Gate, *, ticket: str, lease_ms: int) -> ConfirmReply:
        """Take the place that a ticket has been granted. Only then it may be used."""
        args: Args = {"ticket": ticket, "lease_ms": lease_ms}
        return await self._call(ConfirmReply, "gate_confirm", gate, args)

    async def poll(
        self,
        gate: Gate,
        *,
        replica: str,
        waiting: Sequence[str],
        held: Sequence[str],
        lease_ms: int,
    ) -> PollReply:
        """Say that a replica lives and renew its places; hear what it has missed.

        At most 128 tickets of each.
        """
        args: Args = {
            "replica": replica,
            "waiting": " ".join(waiting),
            "held": " ".join(held),
            "lease_ms": lease_ms,
        }
        return await self._call(PollReply, "gate_poll", gate, args | self._to_hand_on(gate))

    async def reap(self, gate: Gate) -> None:
        """Take back the places of the dead, whoever waits or does not."""
        await self.poll(gate, replica="", waiting=(), held=(), lease_ms=0)

    async def forget(self, tag: str) -> bool:
        """Forget a gate and what was learned there. Returns whether nobody was in it."""
        reply = await self._runner.run("gate_forget", self._keys.gate(tag), {})
        return msgspec.convert(reply, StatusReply).status == "done"

    async def leave(self, gate: Gate, *, ticket: str, status: int) -> LeaveReply:
        """Give a place back, or give up waiting. `status` is the upstream's, 0 for none."""
        args: Args = {"ticket": ticket, "status": status, "interval": gate.interval}
        return await self._call(LeaveReply, "gate_leave", gate, args | self._to_hand_on(gate))

    async def state(self, gate: Gate) -> GateReply:
        """Read how full a gate is, without a write."""
        args: Args = {"limit": gate.limit, "most": gate.most}
        return await self._call(GateReply, "gate_state", gate, args)

    def _to_hand_on(self, gate: Gate) -> Args:
        """What it takes to give a free place to the next in line."""
        publish, channels = self._channels.of(gate.tag)
        return {
            "limit": gate.limit,
            "most": gate.most,
            "publish": publish,
            "channels": channels,
        }

    async def _call(self, shape: type[R], name: str, gate: Gate, args: Args) -> R:
        keys = self._keys.gate(gate.tag)
        return msgspec.convert(await self._runner.run(name, keys, args), shape)
