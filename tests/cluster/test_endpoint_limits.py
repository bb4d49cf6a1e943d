"""Limits of endpoints hold across replicas: exactly, whatever comes in, and whoever dies.

A minute is three seconds here. What was admitted, and when, is read from Redis by its own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.admits import Admits
from tests.cluster.harness import Cluster, Engine, wait_until
from tests.cluster.load import Answer, Streams, ask, clients, until
from tests.cluster.overload import Asked, Overload
from tests.lua.limited import counting

WINDOW_S = 3.0
WINDOW_MS = int(WINDOW_S * 1000)
LEASE_S = 1.5
OUTPUT = 5
"""Tokens that an answer has, unless the request says less."""
PER_S = 20
FAST = {"ttft_ms": 0, "tokens_per_s": 100000, "output_tokens": OUTPUT}
LONG = {"ttft_ms": 0, "tokens_per_s": PER_S, "output_tokens": 30 * PER_S}
TALKATIVE = {"ttft_ms": 0, "tokens_per_s": 100000, "output_tokens": 150}
LIMITS = {"rpm": 60, "tpm": 1500}
KEYS = [
    {"id": "one", "key": "sk-one"},
    {"id": "often", "key": "sk-often", "rpm": 15},
    {"id": "greedy", "key": "sk-greedy", "rpm": 5},
    {"id": "honest", "key": "sk-honest"},
]
ROUTING = {
    "limits": {"window_seconds": WINDOW_S},
    "state": {"lease_s": LEASE_S, "socket_timeout_ms": 500},
    "circuit": {"failure_threshold": 1000, "min_availability": 0.0},
    "retry_budget": {"enabled": True},
    "server": {"abort_grace_ms": 500},
}


def models(engines: list[Engine]) -> list[dict[str, Any]]:
    """A model for each case; the first three engines are fast, talkative and sick."""
    fast, talkative, sick = engines

    def model(name: str, *routes: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {"id": name, "name": name, "provider": "vllm", **fields, "route": list(routes)}

    def at(engine: Engine, **fields: Any) -> dict[str, Any]:
        return {"kind": "vllm", "base_url": engine.url, **fields}

    return [
        model("m", at(fast), **LIMITS),
        model("chatty", at(talkative), **LIMITS),
        model("once", at(fast), rpm=1),
        model("ten", at(fast), rpm=10),
        model("in", at(fast), itpm=100),
        model("out", at(fast), otpm=100),
        model("fixed", at(fast), rpm={"limit": 2, "window": "fixed"}),
        model("quiet", at(fast), rpm={"limit": 2, "mode": "shadow"}),
        model("silent", at(fast, include_usage=False), tpm=1000),
        model("two", at(fast, rpm=2), at(talkative, rpm=3)),
        model("shared", at(fast), rpm=45, max_parallel_requests=12),
        model("failing", at(sick, weight=9), at(fast, weight=1)),
    ]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    """Three replicas; answers come at once."""
    with Cluster(
        tmp_path_factory.mktemp("quick"),
        module_redis,
        engines={"fast": FAST, "talkative": TALKATIVE, "sick": FAST},
        models=models,
        routing=ROUTING,
        keys=KEYS,
    ) as cluster:
        yield cluster


@pytest.fixture
def slow(tmp_path: Path, private_redis: str) -> Iterator[Cluster]:
    """Three replicas; answers take half a minute, unless the request says less."""

    def of(engines: list[Engine]) -> list[dict[str, Any]]:
        route = {"kind": "vllm", "base_url": engines[0].url}
        usual = {"name": "M", "provider": "vllm", "route": [route]}
        return [
            {"id": "m", "max_parallel_requests": 8, **usual},
            {"id": "tokens", "tpm": 1000, **usual},
        ]

    with Cluster(
        tmp_path, private_redis, engines={"long": LONG}, models=of, routing=ROUTING
    ) as cluster:
        yield cluster


honest = functools.partial(ask, key="sk-honest")
"""A caller without limits."""


def refusals(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.status == 429]


async def begun(asking: asyncio.Task[Answer], answer: Answer) -> None:
    """Wait until an answer has begun, or the request has failed."""
    await until(lambda: answer.status or asking.done(), "an answer begun")


def window_of(cluster: Cluster, model: str, field: str) -> int:
    """What counts in a window now."""
    return counting(cluster.row(model).get(field, ""), int(time.time() * 1000))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("model", "asked", "binding"),
    [
        ("m", [Asked("sk-one"), Asked("sk-often")], "rpm"),
        ("m", [Asked("sk-one", 20, 3), Asked("sk-one", 40, 30), Asked("sk-often")], "tpm"),
        ("chatty", [Asked("sk-one", 20, None), Asked("sk-one", 10, 40)], "tpm"),
    ],
    ids=["requests", "tokens", "more tokens than were reserved"],
)
async def test_four_times_too_much_never_exceeds_a_limit_and_reaches_it(
    quick: Cluster, model: str, asked: list[Asked], binding: str
) -> None:
    load = Overload(
        asked=asked,
        rate=4 * LIMITS["rpm"] / WINDOW_S,
        seconds=3.3 * WINDOW_S,
        window_ms=WINDOW_MS,
        limits=LIMITS,
        key_limits={"sk-often": 15},
        model=model,
    )
    quick.redis.delete(f"gw:{{m:{model}}}:endpoints")  # no test before has taken anything
    await asyncio.sleep(random.uniform(0, WINDOW_S))
    async with clients(quick.replicas) as https:
        with Admits(quick.redis_url, model) as admits:
            answers = await load.run(https)
            await until(lambda: quick.is_idle(model), "all settled")

    assert load.faults(answers, admits) == []
    kinds = load.kinds(answers)
    assert kinds[binding] > 0
    assert (kinds["key"] > 0) == any(one.key == "sk-often" for one in asked)
    last_ms = max(admit.at_ms for admit in admits.all())
    assert admits.use(binding, LIMITS[binding], WINDOW_MS, last_ms) >= 0.95


async def test_of_thirty_at_once_through_three_replicas_ten_reach_the_engine(
    quick: Cluster,
) -> None:
    async with clients(quick.replicas) as https:
        with Admits(quick.redis_url, "ten") as admits:
            asking = (honest(https[number % 3], model="ten") for number in range(30))
            answers = await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200, 429}
    assert admits.fullest("rpm", WINDOW_MS) == 10
    assert sum(answer.status == 200 for answer in answers) == len(admits.all())


async def test_one_a_minute_is_one_and_the_next_is_told_when(quick: Cluster) -> None:
    async with clients(quick.replicas) as https:
        answers = [await honest(http, model="once") for http in https]
    assert [answer.status for answer in answers] == [200, 429, 429]
    for refused in refusals(answers):
        assert refused.code == "rate_limit_exceeded"
        assert refused.message.endswith("(1 rpm_limit).")
        assert 1 <= (refused.retry_after or 0) <= WINDOW_S + 1


@pytest.mark.parametrize(
    ("model", "fields", "reason"),
    [("in", {"content": "x" * 240}, "itpm_limit"), ("out", {"max_tokens": 60}, "otpm_limit")],
)
async def test_tokens_of_prompts_and_of_answers_have_limits_of_their_own(
    quick: Cluster, model: str, fields: dict[str, Any], reason: str
) -> None:
    async with clients(quick.replicas) as https:
        holding = [honest(http, model=model, **fields) for http in https]
        answers = await asyncio.gather(*holding)
        answers.append(never := await honest(https[0], "x" * 500, model=model, max_tokens=500))
    if model == "in":  # of answers less is used than was reserved, and the next may fit
        assert [answer.status for answer in answers].count(200) == 1
    assert {refused.message[-len(reason) - 5 :] for refused in refusals(answers)} == {
        f"(1 {reason})."
    }
    assert (never.status, never.retry_after) == (429, None), "it will never fit"


async def test_a_fixed_window_begins_with_its_first_request(quick: Cluster) -> None:
    async with clients(quick.replicas) as https:
        with Admits(quick.redis_url, "fixed") as admits:
            answers = [await honest(http, model="fixed") for http in https]
            await asyncio.sleep(refusals(answers)[0].retry_after or 0)
            answers += [await honest(http, model="fixed") for http in https]
    assert [answer.status for answer in answers] == [200, 200, 429] * 2
    began, second, third, _ = (admit.at_ms for admit in admits.all())
    assert second < began + WINDOW_MS <= third


async def test_a_shadow_refuses_nobody_and_counts(quick: Cluster) -> None:
    async with clients(quick.replicas) as https:
        answers = [await honest(https[number % 3], model="quiet") for number in range(6)]
    assert {answer.status for answer in answers} == {200}
    assert int(quick.row("quiet")[f"{quick.engines[0].location}:would_refuse_rpm"]) >= 1


async def test_an_endpoint_at_its_limit_is_left_for_another(quick: Cluster) -> None:
    async with clients(quick.replicas) as https:
        with Admits(quick.redis_url, "two") as admits:
            asking = (honest(https[number % 3], model="two") for number in range(9))
            answers = await asyncio.gather(*asking)
    assert sum(answer.status == 200 for answer in answers) == len(admits.all()) >= 5
    assert {refused.message[-14:] for refused in refusals(answers)} == {"(2 rpm_limit)."}
    for engine, most in zip(quick.engines, (2, 3), strict=False):
        times = [admit.at_ms for admit in admits.all() if admit.location == engine.location]
        assert max(sum(end - WINDOW_MS < one <= end for one in times) for end in times) == most


async def test_what_nobody_has_counted_is_charged_by_our_own_count(quick: Cluster) -> None:
    """The upstream says nothing of usage: the prompt and what came of the answer count."""
    async with clients(quick.replicas) as https:
        answer = await honest(https[0], "x" * 40, model="silent", stream=True, max_tokens=OUTPUT)
    assert answer.is_whole
    await until(lambda: quick.is_idle("silent"), "settled")
    field = f"{quick.engines[0].location}:tpm"
    assert 10 + OUTPUT <= window_of(quick, "silent", field) <= 10 + OUTPUT + 2


async def test_scripts_that_were_flushed_cost_no_request(quick: Cluster) -> None:
    async with clients(quick.replicas) as https:
        answers = []
        for number in range(6):
            quick.redis.script_flush()
            answers.append(await honest(https[number % 3]))
    assert {answer.status for answer in answers} <= {200, 429}
    assert {refused.code for refused in refusals(answers)} <= {"rate_limit_exceeded"}


@pytest.mark.timeout(120)
async def test_a_refused_caller_at_400_requests_a_second_takes_no_room_of_others(
    quick: Cluster,
) -> None:
    # Given an endpoint with room for an honest caller, the five of a greedy one, and little more
    greedy: list[Answer] = []
    enough = asyncio.Event()

    async def knock(https: Sequence[httpx.AsyncClient]) -> None:
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as knocking:
            while not enough.is_set():
                greedy.append(Answer())
                http, due_s = https[len(greedy) % 3], began_s + len(greedy) / 400
                knocking.create_task(ask(http, model="shared", key="sk-greedy", into=greedy[-1]))
                await asyncio.sleep(max(due_s - time.monotonic(), 0))

    async with clients(quick.replicas) as https, clients(quick.replicas) as others:
        knocking = asyncio.create_task(knock(https))
        await until(lambda: len(refusals(greedy)) > 100, "refusals")
        # When the honest one comes, over several windows
        answers = []
        for number in range(100):
            await asyncio.sleep(0.1)
            answers.append(await honest(others[number % 3], model="shared"))
        enough.set()
        await knocking
    # Then none of its requests fails, and the other's are refused by its own limit
    assert {answer.status for answer in answers} == {200}
    assert {answer.status for answer in greedy} <= {200, 429}
    own = "The limit of 5 requests per 3 s of key 'greedy' is reached."
    assert all(refused.message.startswith(own) for refused in refusals(greedy))


async def test_failover_is_a_fifth_of_first_attempts_in_the_whole_cluster(quick: Cluster) -> None:
    # Given an endpoint that gets nine of ten requests and serves none
    quick.engines[2].fault(status=500, count=10**6)
    async with clients(quick.replicas) as https:
        answers = [await honest(https[number % 3], model="failing") for number in range(60)]
    quick.engines[2].heal()
    # Then others take over for a few, and the rest is told what its endpoint said
    retried = [answer for answer in answers if answer.attempts == 2]
    failed = [answer for answer in answers if answer.status != 200]
    assert 3 <= len(retried) <= 12
    assert {answer.status for answer in retried} == {200}
    assert {answer.status for answer in failed} == {500}
    assert {answer.attempts for answer in failed} == {1}


async def test_five_of_400_tokens_under_1000_are_two_until_one_has_used_less(
    slow: Cluster,
) -> None:
    async with clients(slow.replicas) as https:
        asked = {"content": "x" * 400, "model": "tokens", "max_tokens": 300}
        streams = [Streams(https[number % 3], 1, **asked) for number in range(5)]

        def flowing() -> list[Streams]:
            return [one for one in streams if one.all_flow()]

        def refused() -> list[Answer]:
            return refusals([one.answers[0] for one in streams])

        await until(lambda: len(flowing()) == 2 and len(refused()) == 3, "two of five")
        assert all(answer.message.endswith("(1 tpm_limit).") for answer in refused())
        # When one has ended, having used little more than its prompt
        await flowing()[0].hang_up()
        await until(lambda: len(slow.claims("tokens")) == 1, "settled")
        # Then there is room for another one, and no more
        others = [Streams(https[0], 1, **asked), Streams(https[1], 1, **asked)]
        await until(
            lambda: (
                any(one.all_flow() for one in others)
                and any(one.answers[0].status == 429 for one in others)
            ),
            "one of two",
        )
        for one in (*streams, *others):
            await one.hang_up()


@pytest.mark.timeout(180)
async def test_no_engine_sees_more_at_a_time_than_may_be_and_no_place_is_lost(
    slow: Cluster,
) -> None:
    # Given two hundred clients, who come again when refused, and many of whom leave in mid stream
    numbers = random.Random(1)
    answers: list[Answer] = []
    stopping = asyncio.Event()

    async def client(https: Sequence[httpx.AsyncClient]) -> None:
        while not stopping.is_set():
            asked = {"stream": True, "max_tokens": numbers.randint(1, PER_S)}
            answers.append(answer := Answer())
            asking = asyncio.create_task(ask(numbers.choice(https), into=answer, **asked))
            await begun(asking, answer)
            await asyncio.wait({asking}, timeout=numbers.choice([0.0, 0.4, 30.0]))
            asking.cancel()
            with contextlib.suppress(httpx.TransportError, asyncio.CancelledError):
                await asking
            await asyncio.sleep(numbers.uniform(0.3, 1.2))

    async with clients(slow.replicas) as https:
        coming = [asyncio.create_task(client(https)) for _ in range(200)]
        await asyncio.sleep(4)
        # When a replica is killed
        slow.replicas[0].kill()
        await asyncio.sleep(8)
        stopping.set()
        await asyncio.gather(*coming)
    # Then all places were taken, again and again, and never one more
    assert slow.engines[0].counters()["max_active"] == 8
    assert sum(answer.is_whole for answer in answers) > 8
    heard = {answer.code for answer in refusals(answers) if answer.took_s}
    assert heard == {"rate_limit_exceeded"}
    # And none is held
    wait_until(slow.is_idle, "nothing held")
    assert slow.engines[0].counters()["active"] == 0
