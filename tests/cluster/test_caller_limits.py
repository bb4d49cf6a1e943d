"""Limits of callers hold across replicas: exactly, whatever comes in, and whoever dies.

A minute is three seconds here. What was granted, and when, is read from Redis by its own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import redis

from tests.cluster.harness import ADMIN_KEY, Cluster, body, wait_until
from tests.cluster.load import Answer, Streams, ask, clients, until

WINDOW_S = 3.0
WINDOW_MS = int(WINDOW_S * 1000)
LEASE_S = 1.5
OUTPUT, SPARE = 5, 10
"""Tokens that an answer has, and that it could have had beyond."""
PROMPT = "x" * 40
"""Ten tokens, by everybody's estimate."""
FAST = {"ttft_ms": 0, "tokens_per_s": 100000, "output_tokens": OUTPUT}
PER_S = 20
RPM, TPM, PLACES = 30, 600, 4
PRICING = {"prompt": "1", "completion": "10", "request": "0.001"}
ANSWER_NANOUSD = 1_000_000 + 1_000 + OUTPUT * 10_000
"""What one answer costs: the request, its one prompt token, its output."""
KEYS: Sequence[Mapping[str, Any]] = [
    {"id": "often", "key": "sk-often", "rpm": RPM},
    {"id": "much", "key": "sk-much", "tpm": TPM},
    {"id": "wide", "key": "sk-wide", "max_parallel_requests": PLACES},
    {"id": "poor", "key": "sk-poor", "max_budget": 0.0109},
    {"id": "one", "key": "sk-one", "team": "acme"},
    {"id": "two", "key": "sk-two", "team": "acme", "rpm": 1000},
    {"id": "quiet", "key": "sk-quiet", "rpm": {"limit": 2, "mode": "shadow"}},
    {"id": "few", "key": "sk-few", "model_limits": {"m": {"rpm": 2}}},
    {"id": "greedy", "key": "sk-greedy", "rpm": 5},
    {"id": "honest", "key": "sk-honest", "rpm": 100_000, "tpm": 100_000_000},
    {"id": "free", "key": "sk-free"},
]
GRANT = re.compile(r"\blease_ms=\d+ at_ms=(\d+) tokens=(\d+) nanousd=(\d+) (?:rpm|tpm)=(\S+)")


def make(folder: Path, redis_url: str, *names: str, **engine: object) -> Cluster:
    """Three replicas over engines that are alike."""
    cluster = Cluster(
        folder,
        redis_url,
        engines={name: {**FAST, **engine} for name in names},
        routing={
            "limits": {"window_seconds": WINDOW_S},
            "state": {"lease_s": LEASE_S, "socket_timeout_ms": 500},
        },
    )
    team = {"id": "acme", "rpm": RPM}
    cluster.write("keys.yaml", {"keys": [dict(key) for key in KEYS], "teams": [team]})
    cluster.write("models.yaml", {"models": [{**cluster._model(()), "pricing": PRICING}]})
    return cluster


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    """Answers come at once."""
    folder = tmp_path_factory.mktemp("quick")
    with make(folder, module_redis, "engine-a", "engine-b") as cluster:
        yield cluster


@pytest.fixture
def slow(tmp_path: Path, private_redis: str) -> Iterator[Cluster]:
    """Answers take half a minute, unless the request says less."""
    engine = {"tokens_per_s": PER_S, "output_tokens": 30 * PER_S}
    with make(tmp_path, private_redis, "engine", **engine) as cluster:
        yield cluster


class Grants:
    """Hears from Redis what is granted to a scope, and when, and what stands in a window then."""

    def __init__(self, cluster: Cluster, scope: str, tag: str = "") -> None:
        self.times_ms: list[int] = []
        self.sums: list[int] = []
        """Of the scope's window of tokens, whenever it was written."""
        self._scope = scope
        self._limits = f"gw:{{c:{tag or scope}}}:limits"
        self._written = re.compile(rf"{re.escape(scope)}:tpm\D+sliding \d+ \d+ (\d+)")
        self._redis: redis.Redis = redis.Redis.from_url(cluster.redis_url, decode_responses=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_listening = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._redis.echo("enough")
        self._thread.join(10)
        self._redis.close()

    @property
    def most(self) -> int:
        """How many were granted in the fullest window."""
        times = sorted(self.times_ms)
        return max(sum(end - WINDOW_MS < one <= end for one in times) for end in times)

    def _run(self) -> None:
        with self._redis.monitor() as monitor:
            self._is_listening.set()
            for said in monitor.listen():
                command = said["command"]
                if command == "ECHO enough":
                    return
                if said["client_type"] == "lua" and command.startswith("HSET"):
                    self._hear(command)

    def _hear(self, command: str) -> None:
        grant = GRANT.search(command)
        if grant and self._scope in grant[4].split(","):
            self.times_ms.append(int(grant[1]))
        if self._limits in command and (found := self._written.search(command)):
            self.sums.append(int(found[1]))


class Flood:
    """Requests without pause through all replicas, until stopped."""

    def __init__(
        self,
        https: Sequence[httpx.AsyncClient],
        keys: Sequence[str],
        *,
        output_tokens: int = OUTPUT + SPARE,
        workers_each: int = 4,
    ) -> None:
        self.answers: list[Answer] = []
        self._output_tokens = output_tokens
        self._stopping = False
        self._workers = [
            asyncio.create_task(self._work(http, keys, number))
            for http in https
            for number in range(workers_each)
        ]

    async def _work(self, http: httpx.AsyncClient, keys: Sequence[str], number: int) -> None:
        while not self._stopping:
            key = keys[number % len(keys)]
            answer = await ask(http, PROMPT, key=key, max_tokens=self._output_tokens)
            self.answers.append(answer)

    async def last(self, seconds: float) -> list[Answer]:
        """Go on for so long; returns all answers."""
        await asyncio.sleep(seconds)
        self._stopping = True
        await asyncio.gather(*self._workers)
        return self.answers

    def statuses(self) -> dict[int, int]:
        """How often each came."""
        found = [answer.status for answer in self.answers]
        return {status: found.count(status) for status in sorted(set(found))}


def refusals(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.status == 429]


@pytest.mark.parametrize(
    ("keys", "scope", "tag"),
    [(["sk-often"], "key:often", ""), (["sk-one", "sk-two"], "team:acme", "")],
    ids=["a key's", "a team's"],
)
async def test_requests_through_three_replicas_never_exceed_a_limit_and_reach_it(
    quick: Cluster, keys: list[str], scope: str, tag: str
) -> None:
    async with clients(quick.replicas) as https:
        with Grants(quick, scope, tag) as grants:
            flood = Flood(https, keys)
            answers = await flood.last(2.5 * WINDOW_S)

    statuses = flood.statuses()
    assert set(statuses) == {200, 429}
    assert grants.most == RPM
    assert statuses[200] == len(grants.times_ms)
    for refused in refusals(answers):
        assert refused.code == "rate_limit_exceeded"
        assert 1 <= (refused.retry_after or 0) <= WINDOW_S + 1
        assert f"{RPM} requests" in refused.message


async def test_tokens_through_three_replicas_never_exceed_a_limit(quick: Cluster) -> None:
    async with clients(quick.replicas) as https:
        with Grants(quick, "key:much") as grants:
            flood = Flood(https, ["sk-much"])
            answers = await flood.last(2.5 * WINDOW_S)

    assert set(flood.statuses()) == {200, 429}
    assert max(grants.sums) <= TPM
    assert max(grants.sums) > TPM - (10 + OUTPUT + SPARE), "and what there is can be had"
    assert {refused.code for refused in refusals(answers)} == {"rate_limit_exceeded"}


async def test_no_more_requests_run_at_a_time_than_may(slow: Cluster) -> None:
    async with clients(slow.replicas) as https:
        flood = Flood(https, ["sk-wide"], output_tokens=4)
        answers = await flood.last(4)
    assert set(flood.statuses()) == {200, 429}
    assert {answer.code for answer in refusals(answers)} == {"rate_limit_exceeded"}
    # As many run as may, again and again, and never one more
    assert slow.engines[0].counters()["max_active"] == PLACES
    assert flood.statuses()[200] > PLACES


async def test_the_places_of_a_replica_that_was_killed_come_back(slow: Cluster) -> None:
    victim = slow.replicas[0]
    async with clients(slow.replicas) as https:
        streams = Streams(https[0], PLACES, key="sk-wide")
        await until(streams.all_flow, "all streams under way")
        assert (await ask(https[1], key="sk-wide")).status == 429
        victim.kill()
        await streams.ended()

        async def is_served() -> bool:
            answer = await ask(https[2], key="sk-wide", max_tokens=1)
            return answer.status == 200

        deadline = time.monotonic() + 20
        while not await is_served():
            assert time.monotonic() < deadline, "no place has come back"
            await asyncio.sleep(0.1)
    tag = "gw:{c:key:wide}"
    wait_until(
        lambda: not slow.redis.exists(f"{tag}:reservations", f"{tag}:reserved"), "all reaped"
    )
    assert slow.redis.hget(f"{tag}:limits", "key:wide:parallel") is None


async def test_a_place_outlives_an_emptied_store(slow: Cluster) -> None:
    async with clients(slow.replicas) as https:
        streams = Streams(https[0], PLACES, key="sk-wide")
        await until(streams.all_flow, "all streams under way")
        slow.redis.flushall()
        limits = "gw:{c:key:wide}:limits"
        await until(
            lambda: slow.redis.hget(limits, "key:wide:parallel") == str(PLACES),
            "all places taken again",
        )
        assert (await ask(https[1], key="sk-wide")).status == 429
        await streams.hang_up()
        await until(lambda: not slow.redis.exists("gw:{c:key:wide}:reserved"), "all ended")
    lines = [line for line in slow.replicas[0].events("state_regressed") if "limits" in line]
    assert sum(line["reservations"] for line in lines) == PLACES


async def test_money_is_spent_once_wherever_it_is_spent(quick: Cluster) -> None:
    """Ten answers, and a bit that is not enough for another."""
    async with clients(quick.replicas) as https:
        answers = [await ask(https[n % 3], key="sk-poor", max_tokens=OUTPUT) for n in range(13)]
        assert [answer.status for answer in answers] == [200] * 10 + [429] * 3
        response = await https[0].post(
            "/v1/chat/completions", json=body(), headers={"authorization": "Bearer sk-poor"}
        )
    assert response.json()["error"]["code"] == "insufficient_quota"
    assert response.headers["x-should-retry"] == "false"
    text = quick.redis.hget("gw:{c:key:poor}:limits", "key:poor:budget")
    assert text.endswith(f"spent={10 * ANSWER_NANOUSD} held=0")


async def test_a_shadow_refuses_nobody_and_counts(quick: Cluster) -> None:
    async with clients(quick.replicas) as https:
        answers = [await ask(https[n % 3], key="sk-quiet") for n in range(5)]
    assert {answer.status for answer in answers} == {200}
    fields = quick.redis.hgetall("gw:{c:key:quiet}:limits")
    assert int(fields["key:quiet:would_refuse_rpm"]) >= 1


async def test_a_key_has_limits_of_its_own_for_a_model(quick: Cluster) -> None:
    async with clients(quick.replicas) as https:
        answers = await asyncio.gather(*(ask(http, key="sk-few") for http in [*https, *https]))
    assert sorted(answer.status for answer in answers)[:2] == [200, 200]
    assert {answer.message.partition(" is ")[0] for answer in refusals(answers)} == {
        "The limit of 2 requests per 3 s of key and model 'few:m'"
    }


async def test_what_is_left_is_told_by_whichever_replica(quick: Cluster) -> None:
    left = []
    async with clients(quick.replicas) as https:
        for http in https:
            answer = await http.post(
                "/v1/chat/completions", json=body(), headers={"authorization": "Bearer sk-honest"}
            )
            assert answer.headers["x-ratelimit-limit-requests"] == "100000"
            left.append(int(answer.headers["x-ratelimit-remaining-requests"]))
        assert left == [left[0], left[0] - 1, left[0] - 2]
        # And to an operator
        admin = {"authorization": f"Bearer {ADMIN_KEY}"}
        told = (await https[0].get("/admin/limits/honest", headers=admin)).json()
    assert (told["caller"], told["tag"]) == ("honest", "key:honest")
    assert [limit["limit"] for limit in told["limits"]] == ["rpm", "tpm"]
    assert told["limits"][0]["left"] == left[-1]


async def test_whoever_has_no_limits_leaves_no_trace(quick: Cluster) -> None:
    async with clients(quick.replicas) as https:
        answer = await ask(https[0], key="sk-free")
    assert answer.status == 200
    assert quick.redis.keys("gw:{c:key:free*") == []


@pytest.mark.timeout(180)
async def test_a_refused_caller_at_400_requests_a_second_makes_no_honest_one_fail(
    quick: Cluster,
) -> None:
    # Given a caller who goes on at 400 requests per second, nearly all of them refused
    greedy: list[Answer] = []

    async def knock(https: Sequence[httpx.AsyncClient]) -> None:
        async with asyncio.TaskGroup() as knocking:
            began_s = time.monotonic()
            for number in range(10**9):
                await asyncio.sleep(max(began_s + number / 400 - time.monotonic(), 0))
                knocking.create_task(one(https[number % 3]))

    async def one(http: httpx.AsyncClient) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            greedy.append(await ask(http, key="sk-greedy"))

    async with clients(quick.replicas) as https, clients(quick.replicas) as others:
        knocking = asyncio.create_task(knock(https))
        await until(lambda: len(refusals(greedy)) > 100, "refusals")
        # When others come meanwhile, with limits and without
        honest = [await ask(others[n % 3], key=("sk-honest", "sk-free")[n % 2]) for n in range(300)]
        knocking.cancel()
        await asyncio.wait({knocking})
    # Then none of theirs fails, and the other's are refused by nothing but its limit
    assert {answer.status for answer in honest} == {200}
    assert {answer.status for answer in greedy} <= {200, 429}
    assert {answer.code for answer in refusals(greedy)} == {"rate_limit_exceeded"}
