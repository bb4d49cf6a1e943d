"""Many attempts at once, on a real Redis with its own clock: never more than a limit, nor less."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from gateway.core.limits import EndpointLimits, Limit
from gateway.core.outcome import Outcome
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.state.decision import Decision
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.replies import AdmitReply
from gateway.state.scripts import folder, load_all
from gateway.state.store import Store
from tests.bench.scripts import Runner
from tests.lua.limited import asking, limits_of
from tests.redis_servers import RedisServer

SCRIPTS = load_all(folder())
LEASE_MS = 15_000
MANY = 300
FLOOD_S = 4.0
WINDOW_MS = 900
RPM, TPM, PLACES = 40, 900, 6
RESERVED, MORE, LESS = 20, 25, 15
"""Tokens that an attempt reserves, and that every other one uses."""


class Replica:
    """Asks the scripts as they are, by the server's clock, on a connection of its own."""

    def __init__(self, url: str, keys: Keys, *, window_ms: int) -> None:
        client = redis.Redis.from_url(url, decode_responses=True)
        self._store = Store(Runner(client, SCRIPTS), keys)
        self._policy = Policy(window_ms=window_ms)

    def admit(self, claim: str, limits: EndpointLimits, prompt: Prompt) -> AdmitReply:
        decision = Decision(
            policy=self._policy,
            epoch=0,
            candidates=[("a", 1.0)],
            limited=[("a", limits)],
            tried=(),
            order="declared",
            draws=(),
            prompt=prompt,
        )
        return asyncio.run(self._store.admit("x", decision, claim=claim, lease_ms=LEASE_MS))

    def settle(self, claim: str, used: str) -> None:
        asyncio.run(
            self._store.settle(
                "x",
                claim=claim,
                location="a",
                outcome=Outcome.NEUTRAL,
                status=0,
                live_replicas=3,
                unpin=False,
                policy=self._policy,
                prompt=NO_PROMPT,
                used=used,
            )
        )


@pytest.mark.parametrize(
    ("one", "granted"),
    [
        ({"rpm": 100}, 100),
        ({"rpm": Limit(100, is_fixed=True)}, 100),
        ({"tpm": 1000}, 100),
        ({"itpm": 700}, 100),
        ({"otpm": 300}, 100),
        ({"max_parallel_requests": 5}, 5),
        ({"rpm": Limit(1, is_shadow=True), "tpm": 50}, 5),
        ({"rpm": 98, "tpm": 990, "itpm": 686, "otpm": 291, "max_parallel_requests": 99}, 97),
    ],
    ids=["rpm", "fixed", "tpm", "itpm", "otpm", "parallel", "shadow", "all"],
)
def test_of_three_hundred_at_once_exactly_as_many_are_admitted_as_fit(
    redis_server: RedisServer, keys: Keys, one: dict[str, Limit | int], granted: int
) -> None:
    replica, limits = Replica(redis_server.url, keys, window_ms=600_000), limits_of(**one)

    def ask(number: int) -> str:
        return replica.admit(f"r.{number}", limits, asking(7, 3)).status

    with ThreadPoolExecutor(24) as pool:
        statuses = Counter(pool.map(ask, range(MANY)))

    assert statuses["admitted"] == granted
    assert sum(statuses.values()) == MANY


def flood(url: str, keys: Keys, name: str) -> list[tuple[int, int]]:
    """Ask for more than there is for a while; tells when something was granted, by the server."""
    until_s = time.monotonic() + FLOOD_S
    replica = Replica(url, keys, window_ms=WINDOW_MS)
    one = limits_of(rpm=RPM, tpm=TPM, max_parallel_requests=PLACES)
    granted: list[tuple[int, int]] = []
    number = 0
    while time.monotonic() < until_s:
        number += 1
        reply = replica.admit(f"{name}.{number}", one, asking(RESERVED - 5, 5))
        if reply.is_admitted:
            used = MORE if number % 2 else LESS
            granted.append((int(reply.taken.rpartition(":")[2]), used))
            replica.settle(f"{name}.{number}", f"10 {used - 10}")
    return granted


def test_no_trailing_window_of_several_processes_holds_more_than_the_limits(
    redis_server: RedisServer, keys: Keys
) -> None:
    jobs = [(redis_server.url, keys, f"p{number}") for number in range(3)]
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        granted = sorted(one for some in pool.starmap(flood, jobs) for one in some)

    windows = [
        [used for at_ms, used in granted if end - WINDOW_MS < at_ms <= end] for end, _ in granted
    ]
    assert max(map(len, windows)) <= RPM
    assert max(map(len, windows)) >= 0.9 * RPM, "and what there is can be had"
    assert max(sum(min(used, RESERVED) for used in one) for one in windows) <= TPM
