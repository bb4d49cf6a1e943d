"""What the hot scripts cost inside Redis, beside an empty script and a calibration loop.

A server counts the time of all its scripts together (`INFO commandstats`), so its counters are
reset before each batch of one script. A batch is 50 calls under new claim ids; of 60 batches the
tenth percentile is taken, and of 5 repeats the median. Compare ratios to the calibration, not µs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import count
from statistics import median, quantiles
from typing import Any, cast

import redis
from msgspec import Struct

from gateway.admission.draws import draws
from gateway.core.outcome import Outcome
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.state.decision import Decision
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.replies import AdmitReply
from gateway.state.scripts import Script, folder, load_all
from gateway.state.server import PrivateRedis, find_server
from gateway.state.store import Store
from tests.bench.machine import Unfit

MODEL = "bench"
CALLS = 50
LEASE_MS = 15_000
SIZES = (4, 8, 64)
PLAIN = Policy(affinity=False, prefill=False)
EVERYTHING = Policy()
PROMPT_TOKENS = 60_000
RATE = 8_000
TTFT_MS = 500
EMPTY = "return 1"
CALIBRATION = """\
for i = 1, 20 do
  redis.call('SET', KEYS[1], i)
  redis.call('GET', KEYS[1])
end
"""


class Extent(Struct, frozen=True):
    """How often is measured."""

    batches: int
    repeats: int


FULL = Extent(60, 5)
QUICK = Extent(20, 2)


class Runner:
    """Runs scripts on a plain client, one after the other."""

    def __init__(self, client: redis.Redis, scripts: Mapping[str, Script]) -> None:
        self._client = client
        self._scripts = scripts
        takes_shebang = int(client.info("server")["redis_version"].partition(".")[0]) >= 7
        self._digests = {
            name: client.script_load(script.text(shebang=takes_shebang))
            for name, script in scripts.items()
        }

    async def run(
        self, name: str, keys: Mapping[str, str], args: Mapping[str, str | int]
    ) -> list[Any]:
        """Run a script by its names."""
        names, ordered = self._scripts[name].order(keys, args)
        reply = self._client.evalsha(self._digests[name], len(names), *names, *map(str, ordered))
        return cast(list[Any], reply)


class Costs:
    """Times scripts, in µs per call."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._store = Store(Runner(client, load_all(folder())), Keys("bench"))
        self._numbers = count(1)

    async def plain(self, text: str) -> float:
        """A batch of a script that needs no arguments."""
        digest = self._client.script_load(text)

        async def call(_: int) -> None:
            self._client.evalsha(digest, 1, "bench:calibration")

        return await self._time(call)

    async def all_attempts(self, size: int) -> dict[str, float]:
        """A batch of each kind of attempt among so many candidates.

        A new caller's is drawn, its endpoint being loaded twice; when the caller returns it is
        kept where its prompt is cached. Then the same where all endpoints are compared.
        """
        callers = [f"{next(self._numbers):016x}" for _ in range(CALLS)]
        prompts = [
            Prompt(caller=caller, tokens=PROMPT_TOKENS, fingerprint=caller, anchor=f"9:{caller}")
            for caller in callers
        ]
        found = await self._attempts(f"{size} candidates", size, PLAIN, [NO_PROMPT] * CALLS)
        for order, how in (("draw", ""), ("expected_ttft", " compared")):
            for who in ("a new caller", "it returns"):
                what = f"{size} candidates{how}, {who}"
                found |= await self._attempts(what, size, EVERYTHING, prompts, order)
        return found

    async def _attempts(
        self, what: str, size: int, policy: Policy, prompts: Sequence[Prompt], order: str = "draw"
    ) -> dict[str, float]:
        """A batch of attempts, each script of theirs timed apart."""
        candidates = tuple((f"local-{8000 + number}", 1.0) for number in range(size))
        claims = [f"r0.{next(self._numbers)}" for _ in range(CALLS)]
        replies: list[AdmitReply] = []

        async def admit(number: int) -> None:
            decision = Decision(
                policy=policy,
                epoch=0,
                candidates=candidates,
                tried=(),
                order=order,
                draws=draws(claims[number], 1, min(size + 2, 8)),
                prompt=prompts[number],
                prefill_rate=RATE,
            )
            reply = await self._store.admit(
                MODEL, decision, claim=claims[number], lease_ms=LEASE_MS
            )
            if not reply.is_admitted:
                raise AssertionError(f"refused: {reply}")
            replies.append(reply)

        async def first_token(number: int) -> None:
            await self._store.first_token(
                MODEL,
                claim=claims[number],
                policy=policy,
                prompt=prompts[number],
                ttft_ms=TTFT_MS if order == "expected_ttft" else 0,
            )

        async def settle(number: int) -> None:
            await self._store.settle(
                MODEL,
                claim=claims[number],
                location=replies[number].location,
                outcome=Outcome.SUCCESS,
                status=200,
                live_replicas=1,
                unpin=False,
                policy=policy,
                prompt=prompts[number],
            )

        steps = (admit, first_token, settle)
        return {f"`{step.__name__}`, {what}": await self._time(step) for step in steps}

    async def _time(self, call: Callable[[int], Awaitable[None]]) -> float:
        self._client.config_resetstat()
        for number in range(CALLS):
            await call(number)
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
    calibration = costs["calibration: 20 × SET, GET"]
    lines = [
        f"| script, inside Redis {version} | µs per call | to calibration |",
        "|---|---:|---:|",
    ]
    lines += [f"| {name} | {us:.1f} | {us / calibration:.2f} |" for name, us in costs.items()]
    return "\n".join(lines)


async def _repeat(costs: Costs, extent: Extent) -> dict[str, float]:
    """The tenth percentile of all batches; the scripts take turns, so that drift hits all alike."""
    batches: dict[str, list[float]] = {}
    for _ in range(extent.batches):
        found = {"empty script": await costs.plain(EMPTY)}
        found["calibration: 20 × SET, GET"] = await costs.plain(CALIBRATION)
        for size in SIZES:
            found |= await costs.all_attempts(size)
        for name, us in found.items():
            batches.setdefault(name, []).append(us)
    return {name: quantiles(times, n=10)[0] for name, times in batches.items()}
