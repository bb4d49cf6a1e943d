"""The store: one method per script, plain values in, Structs out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import structs

from gateway.core.limits import EndpointLimits
from gateway.core.outcome import Outcome
from gateway.core.overrides import Overrides, SetOffload
from gateway.core.prompt import Prompt
from gateway.state.coordination import Coordination, read_coordination
from gateway.state.decision import OWN_DIGITS, Decision
from gateway.state.keys import Keys, encode_id
from gateway.state.overrides import OFFLOAD, read_overrides, write_offload
from gateway.state.packing import packed_limits
from gateway.state.policy import USUAL, Policy
from gateway.state.profiles import PublishedProfile, read_profile
from gateway.state.replies import (
    AdmitReply,
    BeatReply,
    CoordinatorReply,
    CountReply,
    ExplainReply,
    OverrideReply,
    OverridesReply,
    PinReply,
    ProfileReply,
    RecordReply,
    RenewClaimsReply,
    ReplicasReply,
    Reply,
    ResetReply,
    RowsReply,
    StatusReply,
)
from gateway.state.standing import Standing, standing_of


class Runner(Protocol):
    """Runs scripts by name."""

    async def run(self, name: str, keys: dict[str, str], args: dict[str, str | int]) -> list[Any]:
        """Run one script. MUST be repeatable, and MUST raise `StateUnavailable` or `ScriptBug`."""
        ...


R = TypeVar("R", bound=Reply)


class Store:
    """The cluster's shared state. Every method is one atomic step and may be repeated.

    Each raises `StateUnavailable` when Redis is away and `ScriptBug` on a fault of our own.
    """

    def __init__(self, runner: Runner, keys: Keys) -> None:
        self._runner = runner
        self._keys = keys

    async def admit(
        self, model_id: str, decision: Decision, *, claim: str, lease_ms: int
    ) -> AdmitReply:
        """Choose among candidates and claim room on the chosen one."""
        keys = self._keys.caller(model_id, decision.prompt.caller)
        args = decision.args()
        args["claim"] = claim
        args["lease_ms"] = lease_ms
        reply = await self._call(AdmitReply, "admit", keys, args)
        return structs.replace(reply, location=unquote(reply.location))

    async def explain(
        self,
        model_id: str,
        decision: Decision,
        *,
        replica: str,
        supposed: int = 0,
        limited: Sequence[tuple[str, EndpointLimits]] = (),
    ) -> ExplainReply:
        """Say what `admit` would answer a replica now, without a write.

        So many attempts of the same request are `supposed` to have been made. It also tells how
        the endpoints stand, and what is left of limits: those that are `limited`.
        """
        keys = self._keys.caller(model_id, decision.prompt.caller)
        args = decision.args()
        args["replica"] = replica
        args["supposed"] = supposed
        args["limited"] = packed_limits(limited)
        reply = await self._call(ExplainReply, "explain", keys, args)
        return structs.replace(reply, location=unquote(reply.location))

    async def first_token(
        self, model_id: str, *, claim: str, policy: Policy, prompt: Prompt, ttft_ms: int = 0
    ) -> RecordReply:
        """Record an attempt's first output: its success, and what its endpoint now has cached.

        How fast that was is learned from `ttft_ms`, from sending to it; from 0 nothing.
        """
        args: dict[str, str | int] = {
            "claim": claim,
            "rules": policy.to_record,
            "ttft_ms": ttft_ms,
            **_to_remember(prompt, policy),
        }
        keys = self._keys.caller(model_id, prompt.caller)
        return await self._call(RecordReply, "first_token", keys, args)

    async def settle(
        self,
        model_id: str,
        *,
        claim: str,
        location: str,
        outcome: Outcome,
        status: int,
        live_replicas: int,
        unpin: bool,
        policy: Policy,
        prompt: Prompt,
        taken: str = "",
        used: str = "",
        cooling: str = "",
        noted: str = "",
    ) -> RecordReply:
        """End a claim and record how its attempt ended; `status` 0 is none.

        `unpin` drops the caller's pin if it names this endpoint. `taken` is what `admit` has said;
        `used`, `cooling` and `noted` are spelt as `lua/settle.lua` says.
        """
        args: dict[str, str | int] = {
            "claim": claim,
            "location": encode_id(location),
            "outcome": outcome.value,
            "status": status,
            "live_replicas": live_replicas,
            "rules": policy.to_record,
            "unpin": int(unpin),
            "taken": taken,
            "used": used,
            "cooling": cooling,
            "noted": noted,
            **_to_remember(prompt, policy),
        }
        keys = self._keys.caller(model_id, prompt.caller)
        return await self._call(RecordReply, "settle", keys, args)

    async def queue(self, model_id: str, *, claim: str, is_queued: bool) -> None:
        """Say that an attempt stands in line, where its prompt is no load yet, or no more."""
        args: dict[str, str | int] = {"claim": claim, "queued": int(is_queued)}
        await self._call(StatusReply, "queue", self._keys.model(model_id), args)

    async def renew(
        self, model_id: str, *, claims: Sequence[str], firsts: Sequence[str], lease_ms: int
    ) -> tuple[list[str], list[str]]:
        """Lengthen leases, at most 128 per call; `firsts` of them have had their first output.

        Returns the ids that the store does not know, and those of whose first output it has not
        heard.
        """
        reply = await self._call(
            RenewClaimsReply,
            "renew",
            self._keys.model(model_id),
            {"ids": " ".join(claims), "firsts": " ".join(firsts), "lease_ms": lease_ms},
        )
        return reply.unknown.split(), reply.unheard.split()

    async def reassert(
        self,
        model_id: str,
        *,
        claim: str,
        location: str,
        lease_ms: int,
        first: bool,
        tokens: int,
        is_elephant: bool,
        caller: str,
    ) -> bool:
        """Put back a claim that the store has lost. Returns whether it had to."""
        args: dict[str, str | int] = {
            "claim": claim,
            "location": encode_id(location),
            "lease_ms": lease_ms,
            "first": int(first),
            "tokens": tokens,
            "elephant": int(is_elephant),
            "caller": caller[:OWN_DIGITS],
        }
        reply = await self._call(StatusReply, "reassert", self._keys.model(model_id), args)
        return reply.status == "done"

    async def reap(self, model_id: str, *, limit: int = 128) -> int:
        """End expired claims of a model. Returns how many."""
        reply = await self._call(CountReply, "reap", self._keys.model(model_id), {"limit": limit})
        return reply.count

    async def beat_replica(
        self, replica: str, *, about: str, ttl_ms: int, salt: str = ""
    ) -> BeatReply:
        """Say that a replica lives (`about` empty: that it leaves).

        Returns how many do, and the salt in force; with `salt` empty none is asked for.
        """
        args: dict[str, str | int] = {
            "replica": replica,
            "about": about,
            "ttl_ms": ttl_ms,
            "salt": salt,
        }
        return await self._call(BeatReply, "beat_replica", self._keys.cluster(), args)

    async def replicas(self) -> ReplicasReply:
        """Read who has said lately that it lives, and the salt in force."""
        return await self._call(ReplicasReply, "replicas", self._keys.cluster(), {})

    async def coordinator(self) -> Coordination:
        """Read who coordinates the cluster, and what that has published."""
        keys = self._keys.cluster()
        return read_coordination(await self._call(CoordinatorReply, "coordinator", keys, {}))

    async def rows(
        self,
        model_id: str,
        *,
        policy: Policy = USUAL,
        limited: Sequence[tuple[str, EndpointLimits]] = (),
    ) -> tuple[int, Standing]:
        """Count a model's claims, and read all that is live about its endpoints.

        What is left of limits is told of those that are `limited`.
        """
        args: dict[str, str | int] = {
            "limited": packed_limits(limited),
            "window_ms": policy.window_ms,
            "retry_percent": policy.retry_percent,
            "retry_floor": policy.retry_floor,
        }
        reply = await self._call(RowsReply, "rows", self._keys.model(model_id), args)
        return reply.claims, standing_of(reply)

    async def profile(self, model_id: str) -> PublishedProfile | None:
        """Read what the coordinator has learned of a model, if it has."""
        reply = await self._call(ProfileReply, "profile", self._keys.model(model_id), {})
        return read_profile(reply.profile, reply.now_ms)

    async def overrides(self, model_id: str) -> Overrides:
        """Read a model's run-time overrides and their epoch."""
        reply = await self._call(OverridesReply, "overrides", self._keys.model(model_id), {})
        return read_overrides(reply)

    async def override_weight(
        self,
        model_id: str,
        *,
        location: str,
        weight: float | None,
        routes: Iterable[tuple[str, str, float]],
    ) -> OverrideReply:
        """Set a route's weight, or with `None` let the config's stand again.

        `routes` are the model's: location, provider label, configured weight.
        """
        field = f"weight:{encode_id(location)}"
        value = "" if weight is None else f"{weight:.17g}"
        return await self._override(model_id, field, value, routes, force=False)

    async def override_provider(
        self,
        model_id: str,
        *,
        label: str,
        disabled: bool,
        routes: Iterable[tuple[str, str, float]],
        force: bool,
    ) -> OverrideReply:
        """Take a provider's routes out of a model, or put them back.

        `force` does it although no route is left.
        """
        field = f"disabled:{encode_id(label)}"
        return await self._override(model_id, field, "1" if disabled else "", routes, force=force)

    async def override_offload(self, model_id: str, *, offload: SetOffload | None) -> OverrideReply:
        """Set a model's offload policy, or with `None` let the config's stand again."""
        value = write_offload(offload) if offload else ""
        return await self._override(model_id, OFFLOAD, value, (), force=True)

    async def override_setting(
        self, model_id: str, name: str, value: float | None, *, is_fallback: bool = False
    ) -> OverrideReply:
        """Set a parameter of a model's strategy, or with `None` let it be as it was.

        A fallback holds where the model's files do not say.
        """
        field = f"{'fallback' if is_fallback else 'setting'}:{name}"
        text = "" if value is None else f"{value:.17g}"
        return await self._override(model_id, field, text, (), force=True)

    async def reset_circuit(self, model_id: str, *, location: str) -> str:
        """Make an endpoint healthy again. Returns its circuit as it was before."""
        reply = await self._call(
            ResetReply,
            "reset_circuit",
            self._keys.model(model_id),
            {"location": encode_id(location)},
        )
        return reply.circuit

    async def pin(self, model_id: str, *, caller: str) -> PinReply:
        """Read a caller's pin."""
        keys = self._keys.caller(model_id, caller)
        return await self._call(PinReply, "pin", keys, {})

    async def drop_pin(self, model_id: str, *, caller: str) -> PinReply:
        """Forget a caller's pin. Returns what it was."""
        keys = self._keys.caller(model_id, caller)
        return await self._call(PinReply, "drop_pin", keys, {})

    async def _override(
        self,
        model_id: str,
        field: str,
        value: str,
        routes: Iterable[tuple[str, str, float]],
        *,
        force: bool,
    ) -> OverrideReply:
        packed = " ".join(
            f"{encode_id(at)} {encode_id(label)} {weight:.17g}" for at, label, weight in routes
        )
        args: dict[str, str | int] = {
            "field": field,
            "value": value,
            "routes": packed,
            "force": int(force),
        }
        return await self._call(OverrideReply, "override", self._keys.model(model_id), args)

    async def _call(
        self, shape: type[R], name: str, keys: dict[str, str], args: dict[str, str | int]
    ) -> R:
        return msgspec.convert(await self._runner.run(name, keys, args), shape)


def _to_remember(prompt: Prompt, policy: Policy) -> dict[str, str | int]:
    """What is to be noted of a prompt once it is cached; of an unknown caller's nothing."""
    return {
        "prompt_tokens": prompt.tokens if prompt.caller and policy.prefill else 0,
        "fingerprint": prompt.fingerprint,
        "anchor": prompt.anchor,
    }
