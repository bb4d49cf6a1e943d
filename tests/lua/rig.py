"""The scripts of one model on one store, called by name, at a time that the test moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from redis.exceptions import NoScriptError

from gateway.state.keys import Keys
from gateway.state.scripts import folder, load_all, sha1
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.state.policy import Policy
from gateway.state.replies import AdmitReply, ExplainReply, RecordReply
from gateway.state.store import OWN_DIGITS
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
        self.keys = keys.caller(model_id, "") | keys.cluster()
        self.model_keys = list(keys.caller(model_id, "").values())
        self._keys, self._model_id = keys, model_id
        self.now_ms = START_MS
        self.policy = Policy()

    def run(self, name: str, *, of: str = "", **args: str | int) -> list[Any]:
        """Run a script by its names, as any caller does, with the keys `of` a caller."""
        script = SCRIPTS[name]
        every = self.keys | self._keys.caller(self._model_id, of)
        keys, ordered = script.order(every, args)
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
        epoch: int = 0,
        prompt: Prompt = NO_PROMPT,
    ) -> AdmitReply:
        """Pins and prefill are those of the prompt's caller, if it has one."""
        args = self._decision(candidates, u, tried, order, epoch, prompt)
        reply = self.run("admit", of=prompt.caller, claim=claim, lease_ms=lease_ms, **args)
        return msgspec.convert(reply, AdmitReply)

    def explain(
        self,
        candidates: str = "a 1",
        *,
        u: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
        tried: str = "",
        order: str = "draw",
        epoch: int = 0,
        prompt: Prompt = NO_PROMPT,
        replica: str = "r",
    ) -> ExplainReply:
        args = self._decision(candidates, u, tried, order, epoch, prompt)
        reply = self.run("explain", of=prompt.caller, replica=replica, **args)
        return msgspec.convert(reply, ExplainReply)

    def _decision(
        self,
        candidates: str,
        u: Sequence[float],
        tried: str,
        order: str,
        epoch: int,
        prompt: Prompt,
    ) -> dict[str, str | int]:
        follows = bool(prompt.caller) and self.policy.affinity and order == "draw"
        return {
            "epoch": epoch,
            "candidates": candidates,
            "tried": tried,
            "order": order,
            "draws": " ".join(f"{number:.17g}" for number in u),
            "caller": prompt.caller[:OWN_DIGITS],
            "affinity": int(follows),
            "prompt_tokens": prompt.tokens,
            "fingerprint": prompt.fingerprint,
            **self.policy.to_decide,
        }

    def first_token(self, claim: str, *, prompt: Prompt = NO_PROMPT) -> RecordReply:
        reply = self.run(
            "first_token",
            of=prompt.caller,
            claim=claim,
            ewma_alpha=self.policy.to_record["ewma_alpha"],
            hint_ttl_ms=self.policy.hint_ttl_ms,
            **_remembered(prompt),
        )
        return msgspec.convert(reply, RecordReply)

    def settle(
        self,
        claim: str,
        outcome: str = "success",
        *,
        at: str = "a",
        status: int = 0,
        live: int = 2,
        unpin: bool | None = None,
        prompt: Prompt = NO_PROMPT,
    ) -> RecordReply:
        """A failure unpins, unless said otherwise."""
        failed = outcome not in ("success", "neutral")
        reply = self.run(
            "settle",
            of=prompt.caller,
            claim=claim,
            location=at,
            outcome=outcome,
            status=status,
            live_replicas=live,
            unpin=int(failed if unpin is None else unpin),
            **self.policy.to_record,
            **_remembered(prompt),
        )
        return msgspec.convert(reply, RecordReply)

    def renew(self, *claims: str, lease_ms: int = LEASE_MS) -> list[str]:
        return self.run("renew", ids=" ".join(claims), lease_ms=lease_ms)[1].split()

    def reassert(
        self,
        claim: str,
        at: str = "a",
        *,
        first: int = 0,
        tokens: int = 0,
        elephant: int = 0,
        caller: str = "",
    ) -> str:
        reply = self.run(
            "reassert",
            claim=claim,
            location=at,
            lease_ms=LEASE_MS,
            first=first,
            tokens=tokens,
            elephant=elephant,
            caller=caller[:OWN_DIGITS],
        )
        return reply[0]

    def reap(self, limit: int = 128) -> int:
        return self.run("reap", limit=limit)[1]

    def beat(self, replica: str, about: str = "host=h", ttl_ms: int = 6_000, salt: str = "") -> int:
        return self.run("beat_replica", replica=replica, about=about, ttl_ms=ttl_ms, salt=salt)[1]

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
        if kind == "string":
            return self.client.get(key)
        return self.client.zrange(key, 0, -1, withscores=True) if kind == "zset" else None


def _remembered(prompt: Prompt) -> dict[str, str | int]:
    return {
        "prompt_tokens": prompt.tokens if prompt.caller else 0,
        "fingerprint": prompt.fingerprint,
        "anchor": prompt.anchor,
    }
