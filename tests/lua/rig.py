"""The scripts of one model on one store, called by name, at a time that the test moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from redis.exceptions import NoScriptError

from gateway.state.keys import Keys
from gateway.state.scripts import folder, load_all, sha1
from gateway.state.store import AdmitReply, Policy, RecordReply
from tests.redis_servers import ScriptStore

START_MS = 1_700_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
DAY = 24 * HOUR
LEASE_MS = 15_000

# The time travels behind the last argument, so that it moves while the scripts' texts stay.
SCRIPTS = load_all(
    folder(), {"lib/time": "local function server_ms() return tonumber(ARGV[#ARGV]) end\n"}
)


class Rig:
    """Calls scripts on a fresh model `x`; `now_ms` is the server's clock."""

    def __init__(self, store: ScriptStore, keys: Keys, model_id: str = "x") -> None:
        self.store = store
        self.client = store.client
        self.keys = keys.model(model_id) | keys.cluster()
        self.model_keys = list(keys.model(model_id).values())
        self.now_ms = START_MS
        self.policy = Policy()

    def run(self, name: str, **args: str | int) -> list[Any]:
        """Run a script by its names, as any caller does."""
        script = SCRIPTS[name]
        keys, ordered = script.order(self.keys, args)
        text = script.text(shebang=self.store.takes_shebang)
        rest = [*keys, *map(str, ordered), str(self.now_ms)]
        try:
            reply = self.client.evalsha(sha1(text), len(keys), *rest)
        except NoScriptError:
            reply = self.client.eval(text, len(keys), *rest)
        assert len(reply) == len(script.returns), f"{name} does not answer what its header says"
        return reply

    def later(self, ms: int) -> None:
        """Move the server's clock, back when negative."""
        self.now_ms += ms

    def admit(
        self,
        claim: str,
        candidates: str = "a 1",
        *,
        u: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
        tried: str = "",
        order: str = "draw",
        lease_ms: int = LEASE_MS,
    ) -> AdmitReply:
        reply = self.run(
            "admit",
            claim=claim,
            candidates=candidates,
            tried=tried,
            order=order,
            draws=" ".join(f"{number:.17g}" for number in u),
            lease_ms=lease_ms,
            failure_threshold=self.policy.failure_threshold,
            cooldown_ms=self.policy.cooldown_ms,
        )
        return msgspec.convert(reply, AdmitReply)

    def first_token(self, claim: str) -> RecordReply:
        alpha = f"{self.policy.ewma_alpha:.17g}"
        return msgspec.convert(self.run("first_token", claim=claim, ewma_alpha=alpha), RecordReply)

    def settle(
        self, claim: str, outcome: str = "success", *, at: str = "a", status: int = 0, live: int = 2
    ) -> RecordReply:
        reply = self.run(
            "settle",
            claim=claim,
            location=at,
            outcome=outcome,
            status=status,
            live_replicas=live,
            failure_threshold=self.policy.failure_threshold,
            cooldown_ms=self.policy.cooldown_ms,
            min_availability=f"{self.policy.min_availability:.17g}",
            ewma_alpha=f"{self.policy.ewma_alpha:.17g}",
        )
        return msgspec.convert(reply, RecordReply)

    def renew(self, *claims: str, lease_ms: int = LEASE_MS) -> list[str]:
        return self.run("renew", ids=" ".join(claims), lease_ms=lease_ms)[1].split()

    def reassert(self, claim: str, at: str = "a", *, first: int = 0) -> str:
        return self.run("reassert", claim=claim, location=at, lease_ms=LEASE_MS, first=first)[0]

    def reap(self, limit: int = 128) -> int:
        return self.run("reap", limit=limit)[1]

    def beat(self, replica: str, about: str = "host=h", ttl_ms: int = 6_000) -> int:
        return self.run("beat_replica", replica=replica, about=about, ttl_ms=ttl_ms)[1]

    # What a test arranges at once.

    def attempt(self, claim: str, outcome: str, *, at: str = "a", **how: int) -> RecordReply:
        """One whole attempt at a location, pinned to it so that no circuit refuses it."""
        assert self.admit(claim, f"{at} 1", order="pinned").location == at
        return self.settle(claim, outcome, at=at, **how)

    def open_circuit(self, at: str = "a") -> None:
        """Fail often enough."""
        for number in range(self.policy.failure_threshold):
            self.attempt(f"opener.{number}", "failure", at=at)
        assert self.field(f"{at}:circuit") == "open"

    # What a test looks at.

    def fields(self) -> dict[str, str]:
        """All that is known of the endpoints, without the clock."""
        found = self.client.hgetall(self.keys["endpoints"])
        return {name: value for name, value in found.items() if name != "at_ms"}

    def field(self, name: str) -> str | None:
        return self.client.hget(self.keys["endpoints"], name)

    def put(self, fields: Mapping[str, str | int]) -> None:
        """Edit endpoints by hand."""
        self.client.hset(self.keys["endpoints"], mapping=dict(fields))

    def holding(self, claim: str) -> str | None:
        return self.client.hget(self.keys["claimed"], claim)

    def deadline(self, claim: str) -> float | None:
        return self.client.zscore(self.keys["claims"], claim)

    def state(self) -> tuple[object, ...]:
        """Everything: each key's bytes, its contents, and how often the server has written."""
        if self.store.kind == "embedded":
            return tuple(map(self._contents, self.keys.values()))
        raw = [self.client.execute_command("DUMP", key, NEVER_DECODE=True) for key in self._all()]
        return (*raw, self.store.writes())

    def ttls(self) -> dict[str, int]:
        """The TTL in ms of each key that exists, by kind; -1 is none."""
        found = {kind: self.client.pttl(key) for kind, key in self.keys.items()}
        return {kind: ttl for kind, ttl in found.items() if ttl != -2}

    def _all(self) -> list[str]:
        return list(self.keys.values())

    def _contents(self, key: str) -> object:
        kind = self.client.type(key)
        if kind == "hash":
            return self.client.hgetall(key)
        return self.client.zrange(key, 0, -1, withscores=True) if kind == "zset" else None
