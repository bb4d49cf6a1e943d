"""What limits of endpoints cost inside Redis: `admit` and `settle` with them, beside those without.

As `tests.bench.scripts` measures: batches of 50 calls under new claim ids, all kinds in turn, of 60
batches the tenth percentile, of 5 repeats the median. Every window holds all its parts, as it does
under load.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from itertools import count
from statistics import median, quantiles

import redis
from msgspec import Struct

from gateway.admission.draws import draws
from gateway.core.limits import UNLIMITED, EndpointLimits, Limit
from gateway.core.outcome import Outcome
from gateway.core.prompt import Prompt
from gateway.state.decision import Decision
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.scripts import folder, load_all
from gateway.state.server import PrivateRedis, find_server
from gateway.state.store import Store
from tests.bench.machine import Unfit
from tests.bench.scripts import CALIBRATION, CALLS, LEASE_MS, MODEL, PLAIN, Extent, Runner

MOST = Limit(10**9)
KINDS: Mapping[str, EndpointLimits] = {
    "none": UNLIMITED,
    "max_parallel_requests": EndpointLimits(max_parallel_requests=MOST),
    "rpm": EndpointLimits(rpm=MOST),
    "rpm, tpm": EndpointLimits(rpm=MOST, tpm=MOST),
    "all five": EndpointLimits(
        rpm=MOST, tpm=MOST, itpm=MOST, otpm=MOST, max_parallel_requests=MOST
    ),
}
POLICIES: Mapping[str, Policy] = {
    "no pins, no prefill": PLAIN,
    "pins and prefill, a new caller": Policy(),
}
LOCATIONS = [f"local-{8000 + number}" for number in range(4)]
PROMPT_TOKENS, OUTPUT_TOKENS, USED = 60_000, 400, "59000 90"
_CALIBRATION = "calibration: 20 × SET, GET"


class Attempts(Struct, frozen=True):
    """A kind of attempt: under which policy, at endpoints with which limits."""

    policy: str
    limits: str

    def decision(self, number: int, claim: str) -> Decision:
        """What the attempt of that number asks; those of one number are drawn alike."""
        policy, limits = POLICIES[self.policy], KINDS[self.limits]
        return Decision(
            policy=policy,
            epoch=0,
            candidates=tuple((at, 1.0) for at in LOCATIONS),
            limited=() if limits is UNLIMITED else tuple((at, limits) for at in LOCATIONS),
            tried=(),
            order="draw",
            draws=draws(f"d{number}", 1, 3),
            prompt=Prompt(
                caller=f"{claim.removeprefix('r0.'):0>8}00000000" if policy.affinity else "",
                tokens=PROMPT_TOKENS,
                output_tokens=OUTPUT_TOKENS,
            ),
        )


ALL = [Attempts(policy, limits) for policy in POLICIES for limits in KINDS]


class Costs:
    """Times batches on a client, in µs per call."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._keys = Keys("bench")
        self._store = Store(Runner(client, load_all(folder())), self._keys)
        self._numbers = count(1)

    async def batch(self, attempts: Attempts) -> tuple[float, float]:
        """A batch of `admit` and the one of `settle` that follows."""
        claims = [f"r0.{next(self._numbers)}" for _ in range(CALLS)]
        decisions = [attempts.decision(number, claim) for number, claim in enumerate(claims)]
        replies = []
        self._fill()
        self._client.config_resetstat()
        for claim, decision in zip(claims, decisions, strict=True):
            reply = await self._store.admit(MODEL, decision, claim=claim, lease_ms=LEASE_MS)
            if not reply.is_admitted:
                raise AssertionError(f"refused: {reply}")
            replies.append(reply)
        admit_us = self._spent()
        self._client.config_resetstat()
        for reply, claim, decision in zip(replies, claims, decisions, strict=True):
            await self._store.settle(
                MODEL,
                claim=claim,
                location=reply.location,
                outcome=Outcome.SUCCESS,
                status=200,
                live_replicas=1,
                unpin=False,
                policy=decision.policy,
                prompt=decision.prompt,
                taken=reply.taken,
                used=USED if reply.taken else "",
            )
        return admit_us, self._spent()

    def calibration(self) -> float:
        """A batch of the calibration loop."""
        digest = self._client.script_load(CALIBRATION)
        self._client.config_resetstat()
        for _ in range(CALLS):
            self._client.evalsha(digest, 1, "bench:calibration")
        return self._spent()

    def _fill(self) -> None:
        """Give every window all its parts."""
        part = self._client.time()[0] // 2
        text = f"sliding 60000 {part} 31000{' 1000' * 31}"
        fields = {
            f"{at}:{kind}": text for at in LOCATIONS for kind in ("rpm", "tpm", "itpm", "otpm")
        }
        self._client.hset(self._keys.model(MODEL)["endpoints"], mapping=fields)

    def _spent(self) -> float:
        seen = self._client.info("commandstats")["cmdstat_evalsha"]
        if seen["calls"] != CALLS:
            raise AssertionError(f"{seen['calls']} calls were counted instead of {CALLS}")
        return float(seen["usec"]) / CALLS


def measure(extent: Extent, cores: Collection[int]) -> str:
    """Measure on a private server pinned to `cores`; returns a table in markdown."""
    binary = find_server()
    if binary is None:
        raise Unfit("needs a redis-server")
    with PrivateRedis(binary) as server:
        assert server.process is not None
        os.sched_setaffinity(server.process.pid, cores)
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            found = [asyncio.run(_repeat(Costs(client), extent)) for _ in range(extent.repeats)]
            version = client.info("server")["redis_version"]
    costs = {name: median(repeat[name] for repeat in found) for name in found[0]}
    unit = costs[_CALIBRATION]
    lines = [
        f"| inside Redis {version} | limits | `admit`, µs | to none | `settle`, µs | to none |",
        "|---|---|---:|---:|---:|---:|",
        f"| {_CALIBRATION} | | {unit:.1f} | | | |",
    ]
    for one in ALL:
        row = [one.policy, one.limits]
        for script in ("admit", "settle"):
            us, without = (costs[f"{script} {of}"] for of in (one, Attempts(one.policy, "none")))
            row += [f"{us:.1f}", f"{us / without:.2f}"]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


async def _repeat(costs: Costs, extent: Extent) -> dict[str, float]:
    """The tenth percentile of all batches; the kinds take turns, so that drift hits all alike."""
    batches: dict[str, list[float]] = {}
    for _ in range(extent.batches):
        batches.setdefault(_CALIBRATION, []).append(costs.calibration())
        for one in ALL:
            for script, us in zip(("admit", "settle"), await costs.batch(one), strict=True):
                batches.setdefault(f"{script} {one}", []).append(us)
    return {name: quantiles(times, n=10)[0] for name, times in batches.items()}
