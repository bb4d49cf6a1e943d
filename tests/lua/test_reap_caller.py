"""reap_caller: whoever is gone gives its places back, with or without traffic."""

from __future__ import annotations

import pytest

from tests.lua.caller_rig import CallerRig, scope
from tests.lua.rig import HOUR, LEASE_MS, MINUTE, SECOND

PLACES = scope(max_parallel_requests=9)


@pytest.fixture
def three(callers: CallerRig) -> CallerRig:
    for number in range(3):
        callers.reserve(f"r.{number}", PLACES)
    return callers


def test_ends_nobody_before_the_lease_is_over(three: CallerRig) -> None:
    three.later(LEASE_MS - 1)
    before = three.state()
    assert three.reap_caller() == 0
    assert three.state() == before


def test_ends_at_most_as_many_as_it_is_told(three: CallerRig) -> None:
    three.later(LEASE_MS)
    assert [three.reap_caller(2), three.reap_caller(2), three.reap_caller(2)] == [2, 1, 0]
    assert three.taken(PLACES) == {"key:alice max_parallel_requests": 0}


def test_of_an_empty_store_makes_nothing(callers: CallerRig) -> None:
    assert callers.reap_caller() == 0
    assert callers.client.exists(*callers.keys.values()) == 0


def test_of_one_without_a_record_drops_it(three: CallerRig) -> None:
    three.client.hdel(three.keys["reserved"], "r.0")
    three.later(LEASE_MS)
    assert three.reap_caller() == 3
    assert three.client.exists(three.keys["reservations"]) == 0


def test_gives_a_deadline_that_the_clock_made_void_one_lease_from_now(three: CallerRig) -> None:
    three.later(-HOUR)
    three.reap_caller()
    three.later(LEASE_MS)
    assert three.reap_caller() == 3


def test_leaves_a_deadline_within_its_own_lease(callers: CallerRig) -> None:
    callers.reserve("long.1", PLACES, lease_ms=HOUR)
    deadline = callers.now_ms + HOUR
    callers.later(MINUTE)
    callers.reserve("short.1", PLACES)
    callers.later(-MINUTE // 2)
    callers.reap_caller()
    scores = callers.client.zrange(callers.keys["reservations"], 0, -1, withscores=True)
    assert scores == [("short.1", callers.now_ms + LEASE_MS), ("long.1", deadline)]


def test_forgets_those_that_lapsed_ten_minutes_ago(three: CallerRig) -> None:
    three.later(LEASE_MS)
    three.reap_caller(1)
    three.later(5 * MINUTE)
    three.reap_caller()
    three.later(5 * MINUTE)
    three.reap_caller()
    assert three.client.zrange(three.keys["lapsed"], 0, -1) == ["r.1", "r.2"]


def test_forgets_those_that_the_clock_made_void(three: CallerRig) -> None:
    three.later(LEASE_MS)
    three.reap_caller()
    three.later(-MINUTE - SECOND)
    three.reap_caller()
    assert three.client.exists(three.keys["lapsed"]) == 0
