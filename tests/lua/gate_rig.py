"""The scripts of one gate, called by name, at a time that the test moves."""

from __future__ import annotations

import itertools

import msgspec
import redis

from gateway.state.gate_store import ConfirmReply, EnterReply, GateReply, LeaveReply, PollReply
from gateway.state.keys import Keys
from tests.lua.rig import LEASE_MS, Rig
from tests.redis_servers import ScriptStore

TAG = "u:openai:0123456789ab"
CONFIRM_MS = 1_000
KEPT_ASIDE_MS = 2_000


class GateRig(Rig):
    """`now_ms` is the server's clock; `limit`, `most` and `interval` are what calls bring along."""

    def __init__(self, store: ScriptStore, keys: Keys, tag: str = TAG) -> None:
        super().__init__(store, keys)
        self.keys = keys.gate(tag)
        self.channels = keys.grants()
        self.publish = "PUBLISH"
        self.limit, self.most, self.interval = 2, 64, 100
        self._ears: dict[str, redis.client.PubSub] = {}

    @classmethod
    def beside(cls, rig: Rig) -> GateRig:
        """On the store of a model's rig, which gets to know the keys."""
        gate = cls(rig.store, rig._keys)
        gate.now_ms = rig.now_ms
        rig.keys = rig.keys | gate.keys
        return gate

    # Replicas hear, or do not.

    def hear(self, *replicas: str) -> None:
        """Let replicas subscribe to their channels."""
        for replica in replicas:
            ear = self._ears[replica] = self.client.pubsub()
            ear.subscribe(self.channels + replica)
            assert ear.get_message(timeout=5)["type"] == "subscribe"

    def deafen(self, replica: str) -> None:
        ear = self._ears.pop(replica)
        ear.unsubscribe()
        while ear.get_message(timeout=5)["type"] != "unsubscribe":
            pass
        ear.close()

    def heard(self, replica: str) -> list[str]:
        """Tickets that have been told on a replica's channel since it was asked last."""
        self.client.publish(self.channels + replica, "that is all")
        ear = self._ears[replica]
        return list(iter(lambda: ear.get_message(timeout=5)["data"], "that is all"))

    def close(self) -> None:
        for ear in self._ears.values():
            ear.close()

    # The verbs.

    def enter(
        self, ticket: str, *, wait: str = "line", lease_ms: int = LEASE_MS, limit: int | None = None
    ) -> EnterReply:
        args = self._to_hand_on() | ({"limit": limit} if limit is not None else {})
        reply = self.run("gate_enter", ticket=ticket, lease_ms=lease_ms, wait=wait, **args)
        return msgspec.convert(reply, EnterReply)

    def confirm(self, ticket: str, lease_ms: int = LEASE_MS) -> ConfirmReply:
        reply = self.run("gate_confirm", ticket=ticket, lease_ms=lease_ms)
        return msgspec.convert(reply, ConfirmReply)

    def poll(
        self, replica: str, *, waiting: str = "", held: str = "", lease_ms: int = LEASE_MS
    ) -> PollReply:
        reply = self.run(
            "gate_poll",
            replica=replica,
            waiting=waiting,
            held=held,
            lease_ms=lease_ms,
            **self._to_hand_on(),
        )
        return msgspec.convert(reply, PollReply)

    def leave(self, ticket: str, status: int = 0) -> LeaveReply:
        reply = self.run(
            "gate_leave",
            ticket=ticket,
            status=status,
            interval=self.interval,
            **self._to_hand_on(),
        )
        return msgspec.convert(reply, LeaveReply)

    def forget(self) -> str:
        return self.run("gate_forget")[0]

    def gate(self) -> GateReply:
        reply = self.run("gate_state", limit=self.limit, most=self.most)
        return msgspec.convert(reply, GateReply)

    def _to_hand_on(self) -> dict[str, str | int]:
        return {
            "limit": self.limit,
            "most": self.most,
            "publish": self.publish,
            "channels": self.channels,
        }

    # What a test arranges at once.

    def fill(self, *tickets: str) -> None:
        """Have these hold places."""
        for ticket in tickets:
            assert self.enter(ticket).status == "held"

    def line_up(self, *tickets: str) -> None:
        """Have these stand in line."""
        for ticket in tickets:
            assert self.enter(ticket).status == "waiting"

    def answered(self, status: int, times: int = 1) -> LeaveReply:
        """So many requests, one after the other, all answered so."""
        for _ in range(times):
            ticket = f"quick.{next(_NUMBERS)}"
            assert self.enter(ticket).status == "held"
            reply = self.leave(ticket, status)
        return reply

    # What a test looks at.

    def holders(self) -> list[str]:
        return sorted(self.client.zrange(self.keys["gate_holders"], 0, -1))

    def line(self) -> list[str]:
        """First come first."""
        return self.client.zrange(self.keys["gate_line"], 0, -1)

    def aside(self) -> list[str]:
        return sorted(self.client.zrange(self.keys["gate_aside"], 0, -1))

    def held_until(self, ticket: str) -> float | None:
        return self.client.zscore(self.keys["gate_holders"], ticket)

    def tickets(self) -> list[str]:
        return sorted(self.client.hkeys(self.keys["gate_tickets"]))

    def row(self, name: str) -> str | None:
        return self.client.hget(self.keys["gate"], name)

    def is_empty(self) -> bool:
        """Whether nobody has left a trace, but for what is known of the limit."""
        kinds = [kind for kind, key in self.keys.items() if self.client.exists(key)]
        return set(kinds) <= {"gate"}


_NUMBERS = itertools.count(1)
