"""A server out of memory: what has been taken of limits becomes what was used all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.exceptions import ResponseError

from gateway.state.keys import Keys
from gateway.state.link import code_of
from tests.lua.limited import asking, limited, taken
from tests.lua.rig import Rig
from tests.redis_servers import RedisServer, private, script_store

EVERY = limited("a", rpm=9, tpm=1000, itpm=1000, otpm=1000, max_parallel_requests=9)


@pytest.fixture(scope="module", params=["redis_binary", "old_redis_binary"])
def full(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with private(request.getfixturevalue(request.param)) as server:
        yield server


@pytest.fixture
def rig(full: RedisServer, keys: Keys) -> Iterator[Rig]:
    """Two attempts, of which one's replica is dead; then the memory is at its end."""
    with script_store(full) as store:
        rig = Rig(store, keys)
        rig.admit("dead.1", EVERY, prompt=asking(30, 10), lease_ms=1)
        rig.admit("r.1", EVERY, prompt=asking(30, 10))
        rig.later(1)
        store.client.config_set("maxmemory", 1)
        yield rig
        store.client.config_set("maxmemory", 0)


def counts(rig: Rig) -> list[int]:
    return [taken(rig, f"a:{kind}") for kind in ("rpm", "tpm", "itpm", "otpm")]


@pytest.mark.parametrize(
    ("used", "left"),
    [("20 5", [2, 65, 50, 15]), ("90 50", [2, 180, 120, 60]), ("unsent", [1, 40, 30, 10])],
    ids=["less", "more", "unsent"],
)
def test_settles(rig: Rig, used: str, left: list[int]) -> None:
    assert rig.settle("r.1", used=used).status == "done"
    assert counts(rig) == left


def test_settles_late(rig: Rig) -> None:
    rig.reap()
    told = f"rpm,tpm,itpm,otpm:30:10:{rig.now_ms - 1}"
    assert rig.settle("dead.1", taken=told, used="20 5").status == "late"
    assert counts(rig) == [2, 65, 50, 15]


def test_tells_who_would_be_refused(rig: Rig) -> None:
    assert rig.explain(EVERY, prompt=asking(950, 1)).reasons == "a=tpm_limit"


def test_admits_nobody_and_takes_nothing(rig: Rig) -> None:
    rig.reap()  # an old server lets a script go on that has freed something
    before = rig.state()
    with pytest.raises(ResponseError) as refused:
        rig.admit("r.2", EVERY, prompt=asking(30, 10))
    assert code_of(refused.value) == "OOM"
    assert rig.state() == before
