"""The scripts of one model on one store, called by name, at a time that the test moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from redis.exceptions import NoScriptError

from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.state.decision import OWN_DIGITS
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.replies import AdmitReply, ExplainReply, RecordReply, RowsReply
from gateway.state.scripts import folder, load_all, sha1
from tests.redis_servers import ScriptStore

START_MS = 1_700_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
DAY = 24 * HOUR
LEASE_MS = 15_000
PIN_MS = 300_000
CALLER = "0123456789abcdef"
OWN = CALLER[:OWN_DIGITS]
"""How an endpoint's row names what is the caller's own."""

# The time travels behind the last argument, so that it moves while the scripts' texts stay.
SCRIPTS = load_all(
    folder(), {"lib/time": "local function server_ms() return tonumber(ARGV[#ARGV]) end\n"}
)


def prompt(tokens: int = 60_000, caller: str = CALLER, **digests: str) -> Prompt:
    """A prompt of the usual caller's."""
    return Prompt(caller=caller, tokens=tokens, **digests)


class Rig:
    """Calls scripts on a fresh model `x`; `now_ms` is the server's clock.

    Its keys are those of the model and of the usual caller.
    """

    def __init__(self, store: ScriptStore, keys: Keys, model_id: str = "x") -> None:
        self.store = store
        self.client = store.client
        self.keys = keys.caller(model_id, CALLER) | keys.cluster()
        self.model_keys = list(keys.caller(model_id, CALLER).values())
        self._keys, self._model_id = keys, model_id
        self.now_ms = START_MS
        self.policy = Policy(retry_percent=-1)
        self.prefill_rate = 8000
        """Of endpoints that have not shown their own."""
        self.offers = ""
        """What candidates cost and how fast they are, for the order `routewise`."""

    def run(self, name: str, *, of: str = CALLER, **args: str | int) -> list[Any]:
        """Run a script by its names, as the gateway does, with the keys `of` a caller."""
        script = SCRIPTS[name]
        every = self.keys if of == CALLER else self.keys | self._keys.caller(self._model_id, of)
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
        """The pin is that of the prompt's caller, if it has one, and the policy says so."""
        args = self._decision(candidates, u, tried, order, epoch, prompt)
        reply = self.run(
            "admit", of=prompt.caller or CALLER, claim=claim, lease_ms=lease_ms, **args
        )
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
        supposed: int = 0,
        limited: str = "",
    ) -> ExplainReply:
        args = self._decision(candidates, u, tried, order, epoch, prompt)
        told = {"replica": replica, "supposed": supposed, "limited": limited}
        reply = self.run("explain", of=prompt.caller or CALLER, **told, **args)
        return msgspec.convert(reply, ExplainReply)

    def rows(self, limited: str = "") -> RowsReply:
        """How all stands, also what is left of limits."""
        policy = self.policy
        reply = self.run(
            "rows",
            limited=limited,
            window_ms=policy.window_ms,
            retry_percent=policy.retry_percent,
            retry_floor=policy.retry_floor,
        )
        return msgspec.convert(reply, RowsReply)

    def _decision(
        self,
        candidates: str,
        u: Sequence[float],
        tried: str,
        order: str,
        epoch: int,
        prompt: Prompt,
    ) -> dict[str, str | int]:
        return {
            "epoch": epoch,
            "candidates": candidates,
            "tried": tried,
            "order": order,
            "draws": " ".join(f"{number * 2**53:.17g}" for number in u),
            "rules": f"{self.policy.to_decide} {self.prefill_rate}",
            "caller": prompt.caller[:OWN_DIGITS],
            "prompt_tokens": prompt.tokens,
            "fingerprint": prompt.fingerprint,
            "output_tokens": prompt.output_tokens,
            "offers": self.offers,
        }

    def first_token(
        self, claim: str, *, prompt: Prompt = NO_PROMPT, ttft_ms: int = 0
    ) -> RecordReply:
        reply = self.run(
            "first_token",
            of=prompt.caller or CALLER,
            claim=claim,
            rules=self.policy.to_record,
            ttft_ms=ttft_ms,
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
        taken: str = "",
        used: str = "",
        cooling: str = "",
        noted: str = "",
    ) -> RecordReply:
        """A failure unpins, unless said otherwise."""
        failed = outcome not in ("success", "neutral")
        reply = self.run(
            "settle",
            of=prompt.caller or CALLER,
            claim=claim,
            location=at,
            outcome=outcome,
            status=status,
            live_replicas=live,
            rules=self.policy.to_record,
            unpin=int(failed if unpin is None else unpin),
            taken=taken,
            used=used,
            cooling=cooling,
            noted=noted,
            **_remembered(prompt),
        )
        return msgspec.convert(reply, RecordReply)

    def renew(self, *claims: str, lease_ms: int = LEASE_MS) -> list[str]:
        return self.run("renew", ids=" ".join(claims), firsts="", lease_ms=lease_ms)[1].split()

    def unheard(self, *claims: str, firsts: str) -> list[str]:
        """Renew claims; returns those of `firsts` of whose first output nobody has told."""
        return self.run("renew", ids=" ".join(claims), firsts=firsts, lease_ms=LEASE_MS)[2].split()

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

    def put(self, fields: Mapping[str, str | int]) -> None:
        """Edit endpoints by hand."""
        self.client.hset(self.keys["endpoints"], mapping=dict(fields))

    def put_pin(
        self, at: str, *, created_ms: int | None = None, until_ms: int | None = None
    ) -> None:
        """Pin the caller by hand; just now, unless said otherwise."""
        created = self.now_ms if created_ms is None else created_ms
        until = self.now_ms + PIN_MS if until_ms is None else until_ms
        self.client.set(self.keys["pin"], f"location={at} created_ms={created} until_ms={until}")

    def put_hint(self, at: str, tokens: int, *, fingerprint: str = "", anchor: str = "") -> None:
        """Have an endpoint believed, by hand, to have so much of the caller's prompts cached."""
        text = (
            f"tokens={tokens} until_ms={self.now_ms + self.policy.hint_ttl_ms} "
            f"generation={self.field(f'{at}:generation') or 0} "
            f"fingerprint={fingerprint} anchor={anchor}"
        )
        self.client.hset(self.keys["hint"], at, text)

    def override(
        self, field: str, value: str, routes: str = "a one 1 b two 1", *, force: int = 0
    ) -> tuple[str, int]:
        """Set an override. Returns the status and the epoch."""
        status, epoch = self.run("override", field=field, value=value, routes=routes, force=force)
        return status, int(epoch)

    # What a test looks at.

    def fields(self) -> dict[str, str]:
        """All that is known of the endpoints, without the clock and the tally of attempts."""
        found = self.client.hgetall(self.keys["endpoints"])
        return {name: value for name, value in found.items() if name not in ("at_ms", "retries")}

    def field(self, name: str) -> str | None:
        return self.client.hget(self.keys["endpoints"], name)

    def pin(self) -> str | None:
        """Where the caller is pinned to."""
        text = self.client.get(self.keys["pin"])
        return text.removeprefix("location=").split()[0] if text else None

    def hint(self, at: str) -> str | None:
        return self.client.hget(self.keys["hint"], at)

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
        if kind == "set":
            return self.client.smembers(key)
        return self.client.zrange(key, 0, -1, withscores=True) if kind == "zset" else None


def _remembered(prompt: Prompt) -> dict[str, str | int]:
    return {
        "prompt_tokens": prompt.tokens if prompt.caller else 0,
        "fingerprint": prompt.fingerprint,
        "anchor": prompt.anchor,
    }
