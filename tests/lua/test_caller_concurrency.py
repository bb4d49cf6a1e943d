"""Many at once, on a real Redis with its own clock: never more than the limit, and never less."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import redis

from gateway.core.limits import Scope
from gateway.state.caller_store import ReserveReply, packed
from gateway.state.keys import Keys
from gateway.state.scripts import folder, load_all
from tests.lua.caller_rig import TAG, fixed, scope, shadow
from tests.redis_servers import RedisServer

SCRIPTS = load_all(folder())
LEASE_MS = 15_000
MANY = 300
FLOOD_S = 4.0


class Replica:
    """Calls the scripts as they are, by the server's clock."""

    def __init__(self, url: str, keys: dict[str, str], *, shebang: bool) -> None:
        self.client = redis.Redis.from_url(url, decode_responses=True)
        self._keys, self._shebang = keys, shebang

    def _call(self, name: str, **args: str | int) -> list[object]:
        keys, ordered = SCRIPTS[name].order(self._keys, args)
        text = SCRIPTS[name].text(shebang=self._shebang)
        reply: list[object] = self.client.eval(text, len(keys), *keys, *ordered)  # type: ignore[assignment]
        return reply

    def reserve(
        self, reservation: str, *scopes: Scope, tokens: int = 1, nanousd: int = 0, window_ms: int
    ) -> ReserveReply:
        reply = self._call(
            "reserve_caller",
            reservation=reservation,
            lease_ms=LEASE_MS,
            scopes=packed(scopes),
            window_ms=window_ms,
            tokens=tokens,
            nanousd=nanousd,
        )
        return msgspec.convert(reply, ReserveReply)

    def settle(self, reservation: str, tokens: int = 0, nanousd: int = 0) -> None:
        self._call(
            "settle_caller",
            reservation=reservation,
            held="",
            outcome="used",
            tokens=tokens,
            nanousd=nanousd,
        )


@pytest.fixture
def replica(redis_server: RedisServer, keys: Keys) -> Replica:
    return Replica(redis_server.url, keys.limits(TAG), shebang=redis_server.version >= (7, 0))


@pytest.mark.parametrize(
    ("limited", "granted"),
    [
        (scope(rpm=100), 100),
        (scope(rpm=fixed(100)), 100),
        (scope(tpm=1000), 100),
        (scope(max_parallel_requests=5), 5),
        (scope(max_budget=700), 100),
        (scope(rpm=shadow(1), tpm=50), 5),
        (scope(rpm=100, tpm=990, max_parallel_requests=98, max_budget=679), 97),
    ],
    ids=["rpm", "fixed", "tpm", "parallel", "budget", "shadow", "all"],
)
def test_of_three_hundred_at_once_exactly_as_many_are_granted_as_fit(
    replica: Replica, limited: Scope, granted: int
) -> None:
    def one(number: int) -> str:
        how = {"tokens": 10, "nanousd": 7, "window_ms": 600_000}
        return replica.reserve(f"r.{number}", limited, **how).status

    with ThreadPoolExecutor(24) as pool:
        statuses = Counter(pool.map(one, range(MANY)))

    assert statuses["reserved"] == granted
    assert sum(statuses.values()) == MANY


def test_the_first_of_many_with_next_to_no_money_is_the_only_one(replica: Replica) -> None:
    poor = scope(max_budget=1)
    with ThreadPoolExecutor(8) as pool:
        replies = pool.map(
            lambda n: replica.reserve(f"r.{n}", poor, nanousd=1, window_ms=60_000), range(8)
        )
        assert [reply.is_reserved for reply in replies].count(True) == 1


def flood(url: str, keys: dict[str, str], name: str, shebang: bool) -> list[int]:
    """Ask for more than there is for a while; tells when something was granted, by the server."""
    until_s = time.monotonic() + FLOOD_S
    replica = Replica(url, keys, shebang=shebang)
    limited = scope(rpm=40, tpm=900, max_parallel_requests=6)
    times: list[int] = []
    number = 0
    while time.monotonic() < until_s:
        number += 1
        reply = replica.reserve(f"{name}.{number}", limited, tokens=20, window_ms=900)
        if reply.is_reserved:
            times.append(int(reply.held.split("at_ms=")[1].split()[0]))
            replica.settle(f"{name}.{number}", tokens=25 if number % 2 else 15)
    return times


def test_no_trailing_window_of_several_processes_holds_more_than_the_limit(
    redis_server: RedisServer, keys: Keys
) -> None:
    shebang = redis_server.version >= (7, 0)
    jobs = [(redis_server.url, keys.limits(TAG), f"p{number}", shebang) for number in range(3)]
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        times = sorted(one for some in pool.starmap(flood, jobs) for one in some)

    most = max(sum(end - 900 < one <= end for one in times) for end in times)
    assert most <= 40
    assert most >= 36, "and what there is can be had"
