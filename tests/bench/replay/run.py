"""One replay: a trace through one policy against simulated engines, in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from msgspec import Struct, field

from gateway.admission.draws import draws
from gateway.core.outcome import Outcome
from gateway.core.prompt import Prompt
from gateway.state.decision import Decision
from gateway.state.replies import AdmitReply
from tests.bench.replay.engines import Engine, EngineSpec
from tests.bench.replay.policies import Contender
from tests.bench.replay.trace import Request
from tests.bench.replay.virtual import MODEL, VirtualStore

LEASE_MS = 86_400_000
"""Longer than any replay: nobody renews in virtual time, and no replica dies."""
USUAL_DRAWS = 8


class Happening(Struct, frozen=True):
    """What befalls an engine: it `dies` or `returns`."""

    at_s: float
    location: str
    what: str


class Scene(Struct, frozen=True, kw_only=True):
    """What all policies are put through alike."""

    requests: Sequence[Request]
    engines: Sequence[EngineSpec]
    block_tokens: int
    decode_tokens_per_s: float
    happenings: Sequence[Happening] = ()
    known_rates: Mapping[str, float] = {}
    """Location to what is believed of its prefill rate at the start."""
    seed: int = 1


class Result(Struct):
    """What has come of it."""

    first_tokens: list[tuple[float, float]] = field(default_factory=list)
    """Of each request: when it came, and how long it waited for its first token, both in s."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    failovers: int = 0
    """Attempts that failed before their first token, and were made again elsewhere."""
    broken: int = 0
    """Answers that were cut off after it."""
    refused: int = 0
    rates: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """When, and what the cluster then believed of its engines, once a minute."""


class _Attempt(Struct, eq=False):
    request: Request
    request_id: str
    number: int = 1
    tried: tuple[str, ...] = ()
    claim: str = ""
    location: str = ""
    sent_s: float = 0.0


class Replay:
    """Moves virtual time from event to event."""

    def __init__(self, scene: Scene, contender: Contender, store: VirtualStore) -> None:
        self._scene = scene
        self._contender = contender
        self._virtual = store
        self._store = store.store
        self._engines = {spec.location: Engine(spec, scene.block_tokens) for spec in scene.engines}
        self._decoding: dict[str, list[_Attempt]] = {at: [] for at in self._engines}
        self._prefilling: dict[str, list[_Attempt]] = {at: [] for at in self._engines}
        self._inflight: Counter[str] = Counter()
        self._events: list[tuple[float, int, str, object, int]] = []
        self._numbers = itertools.count(1)
        self._result = Result()

    async def run(self) -> Result:
        """Replay it all, to the last answer."""
        if self._scene.known_rates:
            believed = {
                f"{at}:prefill_rate": f"{r:.17g}" for at, r in self._scene.known_rates.items()
            }
            self._virtual.put(believed)
        for number, request in enumerate(self._scene.requests):
            self._later(request.at_s, "arrive", _Attempt(request, f"{self._scene.seed}-{number}"))
        for happening in self._scene.happenings:
            self._later(happening.at_s, "happen", happening)
        for minute in range(int(self._scene.requests[-1].at_s // 60) + 1):
            self._later(minute * 60.0, "look", None)
        while self._events:
            now_s, _, what, subject, life = heapq.heappop(self._events)
            self._virtual.time.now_s = now_s
            await self._step(now_s, what, subject, life)
        return self._result

    def _later(self, at_s: float, what: str, subject: object, life: int = 0) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), what, subject, life))

    async def _step(self, now_s: float, what: str, subject: object, life: int) -> None:
        if isinstance(subject, _Attempt):
            if what == "arrive":
                await self._send(now_s, subject)
            elif life == self._engines[subject.location].life:
                await (self._first if what == "first" else self._end)(now_s, subject)
        elif isinstance(subject, Happening):
            await self._happen(now_s, subject)
        else:
            self._result.rates.append((now_s, self._virtual.rates()))

    async def _send(self, now_s: float, attempt: _Attempt) -> None:
        """Put an attempt where `admit` says, and the next one elsewhere when that fails at once."""
        while True:
            reply = await self._admit(now_s, attempt)
            if not reply.is_admitted:
                self._result.refused += 1
                return
            attempt.location, attempt.sent_s = reply.location, now_s
            self._inflight[attempt.location] += 1
            engine = self._engines[attempt.location]
            if engine.is_up:
                break
            attempt = await self._fail(attempt, Outcome.CONNECT)
        first_s, cached = engine.prefill(now_s, attempt.request)
        self._result.prompt_tokens += attempt.request.tokens
        self._result.cached_tokens += cached
        self._prefilling[attempt.location].append(attempt)
        self._later(first_s, "first", attempt, engine.life)

    async def _admit(self, now_s: float, attempt: _Attempt) -> AdmitReply:
        contender = self._contender
        speeds = {
            spec.location: spec.tokens_per_s
            for spec in self._scene.engines
            if spec.joins_s <= now_s and spec.location not in attempt.tried
        }
        if not speeds:
            return AdmitReply("refused", "", 0, 0, 0, 0, "", "", 0, 0, 0, "", "")
        order = contender.order if attempt.number == 1 else contender.later
        attempt.claim = f"replay.{next(self._numbers)}"
        for count in (max(USUAL_DRAWS, len(speeds)), 2 * len(speeds) + 2):
            numbers = draws(attempt.request_id, attempt.number, count)
            lots = numbers[: len(speeds)]
            decision = Decision(
                policy=contender.policy,
                epoch=0,
                candidates=contender.candidates(speeds, self._inflight, lots),
                tried=attempt.tried,
                order=order,
                draws=numbers,
                prompt=_prompt(attempt.request),
            )
            reply = await self._store.admit(MODEL, decision, claim=attempt.claim, lease_ms=LEASE_MS)
            if not reply.is_short:
                break
        return reply

    async def _first(self, now_s: float, attempt: _Attempt) -> None:
        request = attempt.request
        self._result.first_tokens.append((request.at_s, now_s - request.at_s))
        self._prefilling[attempt.location].remove(attempt)
        self._decoding[attempt.location].append(attempt)
        await self._store.first_token(
            MODEL,
            claim=attempt.claim,
            policy=self._contender.policy,
            prompt=_prompt(request),
            ttft_ms=round((now_s - attempt.sent_s) * 1000),
        )
        end_s = now_s + request.output_tokens / self._scene.decode_tokens_per_s
        self._later(end_s, "end", attempt, self._engines[attempt.location].life)

    async def _end(self, now_s: float, attempt: _Attempt) -> None:
        self._decoding[attempt.location].remove(attempt)
        await self._settle(attempt, Outcome.SUCCESS)

    async def _happen(self, now_s: float, happening: Happening) -> None:
        engine = self._engines[happening.location]
        if happening.what == "returns":
            engine.come_back()
            return
        engine.die()
        lost, cut = self._prefilling[happening.location], self._decoding[happening.location]
        self._prefilling[happening.location], self._decoding[happening.location] = [], []
        for attempt in cut:
            self._result.broken += 1
            await self._settle(attempt, Outcome.FAILURE)
        for attempt in lost:
            await self._send(now_s, await self._fail(attempt, Outcome.FAILURE))

    async def _fail(self, attempt: _Attempt, outcome: Outcome) -> _Attempt:
        """End an attempt without output. Returns the next one, which goes elsewhere."""
        self._result.failovers += 1
        await self._settle(attempt, outcome)
        tried = (*attempt.tried, attempt.location)
        return _Attempt(attempt.request, attempt.request_id, attempt.number + 1, tried)

    async def _settle(self, attempt: _Attempt, outcome: Outcome) -> None:
        self._inflight[attempt.location] -= 1
        await self._store.settle(
            MODEL,
            claim=attempt.claim,
            location=attempt.location,
            outcome=outcome,
            status=0,
            live_replicas=1,
            unpin=outcome is not Outcome.SUCCESS,
            policy=self._contender.policy,
            prompt=_prompt(attempt.request),
        )


def _prompt(request: Request) -> Prompt:
    """What the gateway is told: the size, and whose conversation it is."""
    name = blake2b(request.caller.encode(), digest_size=8).hexdigest()
    return Prompt(caller=name, tokens=request.tokens, fingerprint=name)
