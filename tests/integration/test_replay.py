"""Routing policies compared on a small trace, in virtual time: rules, not figures."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec
import pytest
import redis

from tests.bench.replay.engines import EngineSpec
from tests.bench.replay.policies import CONTENDERS
from tests.bench.replay.report import mean_s
from tests.bench.replay.run import Happening, Replay, Result, Scene
from tests.bench.replay.trace import Request
from tests.bench.replay.virtual import VirtualStore, private_redis

BLOCK = 512
BY_NAME = {one.name: one for one in CONTENDERS}
ENGINES = [
    EngineSpec("fast-1", 8000.0, 1000),
    EngineSpec("fast-2", 8000.0, 1000),
    EngineSpec("slow-1", 4000.0, 1000),
    EngineSpec("slow-2", 4000.0, 1000),
]


def conversations(count: int = 120, turns: int = 8, span_s: float = 180.0) -> list[Request]:
    """Conversations that grow by a few blocks with each turn, and share a system prompt."""
    numbers, requests = random.Random(7), []
    for conversation in range(count):
        blocks, at_s = [0], numbers.uniform(0, span_s / 2)
        for _ in range(turns):
            first = 1000 * (conversation + 1) + len(blocks)
            blocks += range(first, first + numbers.randint(2, 8))
            known = tuple(blocks)
            requests.append(Request(at_s, BLOCK * len(known), 50, known, str(conversation)))
            at_s += numbers.uniform(1, span_s / turns / 2)
    return sorted(requests, key=lambda one: one.at_s)


SCENE = Scene(
    requests=conversations(), engines=ENGINES, block_tokens=BLOCK, decode_tokens_per_s=50.0
)


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    with private_redis() as client:
        yield client


async def replayed(client: redis.Redis, scene: Scene, name: str) -> Result:
    return await Replay(scene, BY_NAME[name], VirtualStore(client)).run()


def left_over(client: redis.Redis) -> Sequence[str]:
    """What is still held at the end."""
    fields = client.hgetall("replay:{m:replayed}:endpoints")
    held = ("inflight", "prefill_tokens", "elephants", "own")
    return [name for name in fields if name.partition(":")[2].partition(":")[0] in held]


@pytest.mark.parametrize("name", BY_NAME)
async def test_every_request_gets_its_first_token_and_nothing_stays_held(
    client: redis.Redis, name: str
) -> None:
    found = await replayed(client, SCENE, name)

    assert len(found.first_tokens) == len(SCENE.requests)
    assert (found.refused, found.failovers, found.broken) == (0, 0, 0)
    assert left_over(client) == []


async def test_is_the_same_every_time(client: redis.Redis) -> None:
    one, two = [await replayed(client, SCENE, "expected_ttft") for _ in range(2)]

    assert one == two


async def test_comparing_endpoints_beats_every_other_policy(client: redis.Redis) -> None:
    means = {name: mean_s(await replayed(client, SCENE, name)) for name in BY_NAME}

    ours = means.pop("expected_ttft")
    assert ours < 0.8 * min(means.values())


async def test_first_tokens_of_an_engine_that_dies_come_from_others(client: redis.Redis) -> None:
    happenings = [Happening(30.0, "fast-1", "dies"), Happening(60.0, "fast-1", "returns")]
    scene = msgspec.structs.replace(SCENE, happenings=happenings)

    found = await replayed(client, scene, "expected_ttft")

    assert len(found.first_tokens) == len(scene.requests)
    assert found.failovers > 0
    assert found.refused == 0
    assert left_over(client) == []
    assert client.hget("replay:{m:replayed}:endpoints", "fast-1:circuit") is None


async def test_engine_that_is_added_cold_takes_part(client: redis.Redis) -> None:
    late = msgspec.structs.replace(ENGINES[0], joins_s=30.0)
    scene = msgspec.structs.replace(SCENE, engines=[late, *ENGINES[1:]])

    found = await replayed(client, scene, "expected_ttft")

    assert "fast-1" not in found.rates[0][1]
    assert found.rates[-1][1]["fast-1"] == pytest.approx(8000, rel=0.2)
    assert mean_s(found) < mean_s(await replayed(client, scene, "fixed"))


async def test_rates_that_are_wrong_twofold_at_first_are_learned(client: redis.Redis) -> None:
    wrong = {one.location: 32_000_000 / one.tokens_per_s for one in ENGINES}
    scene = msgspec.structs.replace(SCENE, known_rates=wrong)

    found = await replayed(client, scene, "expected_ttft")

    assert found.rates[0][1] == wrong
    for spec in ENGINES:
        assert found.rates[-1][1][spec.location] == pytest.approx(spec.tokens_per_s, rel=0.25)
