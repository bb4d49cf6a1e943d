"""Why a request goes where it goes: what `admit` would answer it now. Nothing is written.

The question is put as the pipeline puts it, to the same script library; so what is told is what
happens, as long as nothing changes in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from gateway.admin.keys import CallerKeys, NoSuchKey
from gateway.admin.rows import plain
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
from gateway.core.prompt import Prompt
from gateway.core.reasons import Reason
from gateway.core.request import ChatRequest
from gateway.core.route import Model
from gateway.errors import InvalidRequest, StateUnavailable
from gateway.routing.affinity import affinity_key
from gateway.routing.candidates import Planner
from gateway.routing.strategies import strategy_of
from gateway.routing.weights import weigh
from gateway.state.policy import Policy
from gateway.state.replies import ExplainReply, read_reasons, read_scores
from gateway.state.store import Store, rows_of

MOST_REREADS = 3
"""How often an operator may change the overrides while one question is asked."""
_NO_PROXIES = Proxies(())
_NEAR = 1.05
"""Endpoints whose scores differ by less are as good as each other (`lua/score`)."""
_ROUNDED_MS = 0.5
"""By how much a score may be off as it is told."""
_NOT_SHOWN = {"generation"}


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
    modalities: frozenset[Literal["text", "image", "audio", "video", "file"]] = frozenset()


class Candidate(Struct, frozen=True, kw_only=True):
    """A route of the model, and how it fares."""

    endpoint: str
    weight: float
    """In force."""
    factors: Mapping[str, float]
    """What a strategy multiplies it by; `fixed` has none."""
    score: float | None
    """What a strategy that compares gives it, in ms: the least is the best; `fixed` gives none."""
    share: float
    """Of the weights of all that may be drawn; where endpoints are compared, of those that are as
    good as the best. Pins are not in it."""
    reason: str | None
    """Why it may not be drawn now."""
    holds: Mapping[str, int | float | str]
    """Its row in Redis, as far as it says something to people."""


class Explanation(Struct, frozen=True, kw_only=True):
    """A decision, and all that led to it."""

    model: str
    epoch: int
    request_id: str
    attempt: int
    replica: str
    """Whose request it would be: one replica alone may keep off an endpoint."""
    drawn: str | None
    """The endpoint."""
    refused: str | None
    """What a client would be told instead, or that the caller may not use the model."""
    order: str
    """How candidates are taken, as the strategy says (`lua/admit.lua`)."""
    draws: Sequence[float]
    """The numbers that the draw has used."""
    pin: str
    """What becomes of the caller's pin: `kept`, `made`, or nothing."""
    probe: bool
    """Whether it would be the one trial of a half-open circuit."""
    prompt_tokens: int
    prefill_tokens: int
    """What the endpoint would be charged with until the first output."""
    retry_after_ms: int
    """When a refusal may end; 0 where waiting cannot help."""
    candidates: Sequence[Candidate]


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
        prompt = Prompt(caller=self._digest(caller, question), tokens=question.prompt_tokens)
        for _ in range(MOST_REREADS):
            overrides = await self._store.overrides(model.id)
            plan = self._plan(model, question, overrides)
            try:
                found = await self._replay(plan, overrides, prompt, asked, question)
                return found if caller is None else _as_told(found, caller, model)
            except _Stale:
                continue
        raise StateUnavailable

    async def _replay(
        self, plan: Plan, overrides: Overrides, prompt: Prompt, asked: str, question: Question
    ) -> Explanation:
        """Go through the attempts up to the one asked for."""
        attempt, by_location = question.attempt, plan.candidates.by_location
        for number in range(1, attempt):
            reply, _ = await self._ask(plan, prompt, asked, number)
            if reply.location not in by_location:
                break
            plan.strike(by_location[reply.location], Reason.ALREADY_ATTEMPTED)
        reply, numbers = await self._ask(plan, prompt, asked, attempt)
        drawn = by_location.get(reply.location)
        reasons = {**read_reasons(reply.reasons), **plan.reasons()}
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
            draws=numbers[: reply.drawn],
            pin=reply.pin,
            probe=bool(reply.probe),
            prompt_tokens=prompt.tokens,
            prefill_tokens=reply.tokens,
            retry_after_ms=reply.retry_after_ms,
            candidates=_candidates(plan, overrides, reasons, reply),
        )

    async def _ask(
        self, plan: Plan, prompt: Prompt, asked: str, attempt: int
    ) -> tuple[ExplainReply, Sequence[float]]:
        """Ask as `Admission.admit` does; also returns the numbers given."""
        order = strategy_of(plan.model).order(plan, attempt)
        for count in (USUAL_DRAWS, most_draws(plan)):
            numbers = [] if order in UNDRAWN else draws(asked, attempt, count)
            decision = decision_for(plan, prompt, self._policy, order, numbers)
            reply = await self._store.explain(plan.model.id, decision, replica=self._replica_id)
            if reply.status == "stale":
                raise _Stale
            if reply.status != "short":
                break
        return reply, numbers

    def _plan(self, model: Model, question: Question, overrides: Overrides) -> Plan:
        chat = ChatRequest(
            model=question.model, fields={}, modalities=question.modalities - {"text"}
        )
        try:
            return self._planner.plan(model, chat, overrides)
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


def _candidates(
    plan: Plan,
    overrides: Overrides,
    reasons: Mapping[str, str],
    reply: ExplainReply,
) -> list[Candidate]:
    rows, scores = rows_of(reply.fields), read_scores(reply.scores)
    weights = {one.route.location: one.weight for one in weigh(plan.model, overrides)}
    drawable = _drawable([at for at in weights if at not in reasons], scores)
    total = sum(weights[location] for location in drawable)
    return [
        Candidate(
            endpoint=route.endpoint,
            weight=weights[route.location],
            factors={},
            score=scores.get(route.location),
            share=weights[route.location] / total if route.location in drawable else 0.0,
            reason=reasons.get(route.location),
            holds=_holds(rows.get(route.location, {})),
        )
        for route in plan.model.routes
    ]


def _drawable(admissible: Sequence[str], scores: Mapping[str, float]) -> set[str]:
    """Those among whom weights choose: where there are scores, the best and those near it."""
    known = {location: scores[location] for location in admissible if location in scores}
    if not known:
        return set(admissible)
    most = (min(known.values()) + _ROUNDED_MS) * _NEAR + _ROUNDED_MS
    return {location for location, score in known.items() if score <= most}


def _holds(row: Mapping[str, str]) -> dict[str, int | float | str]:
    values = {name: plain(text) for name, text in row.items() if name not in _NOT_SHOWN}
    if isinstance(availability := values.get("availability"), float):
        values["availability"] = round(availability, 4)
    return values


def _as_told(found: Explanation, caller: Caller, model: Model) -> Explanation:
    """The same, or the refusal of a caller who may not use the model."""
    if caller.may_use(model):
        return found
    return structs.replace(
        found,
        drawn=None,
        refused=f"'{caller.id}' may not use model '{model.id}': to this caller it looks unknown.",
        draws=(),
        pin="",
        probe=False,
        prefill_tokens=0,
        retry_after_ms=0,
    )
