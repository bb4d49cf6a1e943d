"""Why a request goes where it goes: what `admit` would answer it now. Nothing is written.

The question is put as the pipeline puts it, to the same script library; so what is told is what
happens, as long as nothing changes in between.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from gateway.admin.explanation import Compared, Explanation, as_told, candidates_of
from gateway.admin.keys import CallerKeys, NoSuchKey
from gateway.admin.targets import any_model
from gateway.admission.admit import USUAL_DRAWS, Refused, decision_for, most_draws
from gateway.admission.draws import UNDRAWN, draws
from gateway.admission.secret import Secret
from gateway.api.request import FreshIds, request_id
from gateway.auth.addresses import Proxies
from gateway.auth.holders import caller_of
from gateway.auth.keys import ADMIN_ID
from gateway.config.result import Config
from gateway.core.caller import Caller
from gateway.core.overrides import Overrides
from gateway.core.plan import Candidates, Plan
from gateway.core.profile import NO_PROFILE
from gateway.core.prompt import Prompt
from gateway.core.reasons import Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Model
from gateway.errors import InvalidRequest, StateUnavailable
from gateway.protocols.output_bound import most_output
from gateway.routing.affinity import affinity_key
from gateway.routing.candidates import Planner
from gateway.routing.failover import strike_attempted
from gateway.routing.strategies import strategy_of
from gateway.state.decision import Decision
from gateway.state.policy import Policy
from gateway.state.profiles import PublishedProfile
from gateway.state.replies import ExplainReply, read_reasons, read_scores, read_shares
from gateway.state.standing import standing_of
from gateway.state.store import Store

MOST_REREADS = 3
"""How often an operator may change the overrides while one question is asked."""
_NO_PROXIES = Proxies(())


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that might come."""

    model: str
    """An id or an alias."""
    caller: str | None = None
    """A caller's public id: of its key, or `ip:<bucket>`. Without one, nobody who has a pin, and
    who may use every model."""
    session: str | None = None
    request_id: str | None = None
    """Chooses the numbers of the draw; a fresh one unless given."""
    attempt: Annotated[int, Meta(ge=1, le=100)] = 1
    """Those before it count as failed, each where it would have gone."""
    prompt_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    max_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] | None = None
    """What its client bounds the answer by."""
    modalities: frozenset[Literal["text", "image", "audio", "video", "file"]] = frozenset()


class _Stale(Exception):
    """An operator has changed the overrides since they were read."""


class Explainer:
    """Answers questions under one configuration."""

    def __init__(
        self,
        config: Config,
        store: Store,
        policy: Policy,
        secret: Secret,
        keys: CallerKeys,
        *,
        replica_id: str,
    ) -> None:
        self._config = config
        self._store = store
        self._policy = policy
        self._secret = secret
        self._keys = keys
        self._replica_id = replica_id
        self._planner = Planner()
        self._fresh_id = FreshIds()

    async def explain(self, question: Question) -> Explanation:
        """Tell what would be decided.

        Raises `NoSuchTarget`, `NoSuchKey`, `InvalidRequest` and `StateUnavailable`.
        """
        model = any_model(self._config, question.model)
        if model.model_type != "chat":
            raise InvalidRequest(f"Model '{question.model}' is not a chat model.", param="model")
        asked = self._request_id(question)
        caller = await self._caller(question)
        chat = _request(question)
        prompt = Prompt(
            caller=self._digest(caller, question),
            tokens=question.prompt_tokens,
            output_tokens=most_output(chat, model) if model.counts_tokens else 0,
        )
        for _ in range(MOST_REREADS):
            overrides = await self._store.overrides(model.id)
            plan = self._plan(model, chat, overrides, prompt.tokens)
            profile = await self._store.profile(model.id) if _is_calibrated(model) else None
            try:
                found = await self._replay(
                    plan, overrides, prompt, asked, question, profile=profile
                )
                return found if caller is None else as_told(found, caller, model)
            except _Stale:
                continue
        raise StateUnavailable

    async def _replay(
        self,
        plan: Plan,
        overrides: Overrides,
        prompt: Prompt,
        asked: str,
        question: Question,
        *,
        profile: PublishedProfile | None,
    ) -> Explanation:
        """Go through the attempts up to the one asked for."""
        attempt, by_location = question.attempt, plan.candidates.by_location
        for number in range(1, attempt):
            reply, _ = await self._ask(plan, prompt, asked, number, profile=profile)
            if reply.location not in by_location:
                break
            strike_attempted(plan, by_location[reply.location])
        reply, decision = await self._ask(plan, prompt, asked, attempt, profile=profile)
        drawn = by_location.get(reply.location)
        reasons = {**read_reasons(reply.reasons), **plan.reasons()}
        reserve = plan.candidates.reserve
        if reserve not in ("", reply.location):
            reasons.setdefault(reserve, Reason.OFFLOAD_ONLY)
        standing = standing_of(reply)
        hedge = None
        if drawn and attempt == 1:
            known = profile.profile if profile else NO_PROFILE
            hedge = strategy_of(plan.model).hedge(plan, prompt, known, drawn.location)
        refusal = plan.refusal or Refused(reasons, reply.retry_after_ms).error(question.model)
        return Explanation(
            model=plan.model.id,
            epoch=overrides.epoch,
            request_id=asked,
            attempt=attempt,
            replica=self._replica_id,
            drawn=drawn.endpoint if drawn else None,
            refused=None if drawn else str(refusal),
            order=strategy_of(plan.model).order(plan, attempt),
            draws=decision.draws[: reply.drawn],
            pin=reply.pin,
            probe=bool(reply.probe),
            prompt_tokens=prompt.tokens,
            output_tokens=prompt.output_tokens,
            prefill_tokens=reply.tokens,
            retry_after_ms=reply.retry_after_ms,
            retry_budget=standing.retries if len(by_location) > 1 else None,
            profile_age_ms=profile.age_ms if profile else None,
            hedge=hedge,
            candidates=candidates_of(
                plan,
                overrides,
                reasons,
                standing,
                Compared(
                    scores=read_scores(reply.scores),
                    shares=read_shares(reply.shares),
                    costs=read_shares(reply.costs),
                    offers=decision.offers.each if decision.offers else {},
                ),
            ),
        )

    async def _ask(
        self,
        plan: Plan,
        prompt: Prompt,
        asked: str,
        attempt: int,
        *,
        profile: PublishedProfile | None,
    ) -> tuple[ExplainReply, Decision]:
        """Ask as `Admission.admit` does; also returns what was put to the store."""
        known = profile.profile if profile else NO_PROFILE
        order = strategy_of(plan.model).order(plan, attempt)
        for count in (USUAL_DRAWS, most_draws(plan)):
            numbers = [] if order in UNDRAWN else draws(asked, attempt, count)
            decision = decision_for(plan, prompt, self._policy, order, numbers, profile=known)
            reply = await self._store.explain(
                plan.model.id,
                decision,
                replica=self._replica_id,
                supposed=list(plan.struck.values()).count(Reason.ALREADY_ATTEMPTED),
                limited=plan.model.limited,
            )
            if reply.status == "stale":
                raise _Stale
            if reply.status != "short":
                break
        return reply, decision

    def _plan(self, model: Model, chat: ChatRequest, overrides: Overrides, tokens: int) -> Plan:
        try:
            return self._planner.plan(model, chat, overrides, tokens=tokens)
        except InvalidRequest as refusal:  # no route takes such input
            dropped = {route.location: Reason.MODALITY for route in model.routes}
            candidates = Candidates.of(overrides.epoch, [], dropped)
            return Plan(model=model, candidates=candidates, refusal=refusal)

    async def _caller(self, question: Question) -> Caller | None:
        """Who is meant. Raises `NoSuchKey` where callers need keys and this one has none."""
        name, config = question.caller, self._config
        if name is None:
            if question.session is not None:
                raise InvalidRequest("A session is a caller's: say whose.", param="caller")
            return None
        if name.startswith("ip:"):
            return Caller(id=name)
        if name == ADMIN_ID and config.admin_key_sha256:
            return Caller(id=name, role="admin")
        if config.settings.auth != "keys":
            return Caller(id=name)
        try:
            return caller_of(await self._keys.record(name), config.users, config.teams)
        except NoSuchKey:
            if config.keys is None:
                return Caller(id=name)
            raise NoSuchKey(
                f"There is no caller '{name}': give the id of a key, or ip:ADDRESS.",
                param="caller",
            ) from None

    def _digest(self, caller: Caller | None, question: Question) -> str:
        """What the cluster knows the caller by, empty for nobody."""
        if caller is None:
            return ""
        if self._secret.key is None:
            raise StateUnavailable
        return affinity_key(caller, question.session, self._secret.key) or ""

    def _request_id(self, question: Question) -> str:
        given = question.request_id
        if given is None:
            return self._fresh_id()
        if request_id({"x-request-id": given}, None, _NO_PROXIES, str) != given:
            raise InvalidRequest(
                "No request has such an id: 1 to 128 of A-Z a-z 0-9 . _ -", param="request_id"
            )
        return given


def _is_calibrated(model: Model) -> bool:
    return strategy_of(model).IS_CALIBRATED


def _request(question: Question) -> ChatRequest:
    """As far as anything is decided by it."""
    bound = question.max_tokens
    return ChatRequest(
        model=question.model,
        fields={} if bound is None else {"max_tokens": Raw(str(bound).encode())},
        modalities=question.modalities - {"text"},
    )
