"""A server out of memory: what ends reservations must run, what takes must not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.exceptions import ResponseError

from gateway.state.keys import Keys
from gateway.state.link import code_of
from tests.lua.caller_rig import CallerRig, scope
from tests.lua.rig import HOUR, LEASE_MS
from tests.redis_servers import RedisServer, private, script_store

EVERY = scope(rpm=9, tpm=1000, max_parallel_requests=9, max_budget=1000, budget_duration_ms=HOUR)


@pytest.fixture(scope="module", params=["redis_binary", "old_redis_binary"])
def full(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with private(request.getfixturevalue(request.param)) as server:
        yield server


@pytest.fixture
def callers(full: RedisServer, keys: Keys) -> Iterator[CallerRig]:
    """Two requests, of which one's replica is dead; then the memory is at its end."""
    with script_store(full) as store:
        callers = CallerRig(store, keys)
        callers.reserve("dead.1", EVERY, tokens=10, nanousd=10, lease_ms=1)
        callers.reserve("r.1", EVERY, tokens=10, nanousd=10)
        callers.later(1)
        store.client.config_set("maxmemory", 1)
        yield callers
        store.client.config_set("maxmemory", 0)


def taken(callers: CallerRig) -> list[int]:
    return list(callers.taken(EVERY).values())


@pytest.mark.parametrize(
    ("outcome", "left"), [("used", [2, 90, 1, 90]), ("unused", [1, 10, 1, 10])]
)
def test_settles(callers: CallerRig, outcome: str, left: list[int]) -> None:
    used = {"tokens": 80, "nanousd": 80} if outcome == "used" else {}
    assert callers.settle_caller("r.1", outcome=outcome, **used) == "done"
    assert taken(callers) == left


def test_reaps_and_settles_late(callers: CallerRig) -> None:
    assert callers.reap_caller() == 1
    assert taken(callers) == [2, 20, 1, 20]
    assert callers.settle_caller("dead.1", tokens=1, nanousd=1) == "late"
    assert taken(callers) == [2, 11, 1, 11]


def test_renews(callers: CallerRig) -> None:
    assert callers.renew_caller("r.1") == []
    callers.later(LEASE_MS - 1)
    assert callers.reap_caller() == 1, "only the other"


def test_tells(callers: CallerRig) -> None:
    assert taken(callers) == [2, 20, 2, 20]


def test_reserves_and_puts_back_nothing(callers: CallerRig) -> None:
    callers.reap_caller()  # an old server lets a script go on that has freed something
    before = callers.state()
    for call in (
        lambda: callers.reserve("r.2", EVERY),
        lambda: callers.reassert_caller("dead.1"),
    ):
        with pytest.raises(ResponseError) as refused:
            call()
        assert code_of(refused.value) == "OOM"
    assert callers.state() == before
