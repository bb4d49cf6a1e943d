"""reassert_caller: a reservation that was lost while its request runs is put back, once."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from tests.lua.caller_rig import CallerRig, scope
from tests.lua.rig import HOUR, LEASE_MS

EVERY = scope(rpm=9, tpm=1000, max_parallel_requests=9, max_budget=1000, budget_duration_ms=HOUR)
ANOTHER = {"tokens": 300, "nanousd": 50}


@pytest.fixture
def running(callers: CallerRig) -> CallerRig:
    """A request under way."""
    callers.reserve("r.1", EVERY, tokens=400, nanousd=70)
    return callers


def taken(callers: CallerRig) -> list[int]:
    return list(callers.taken(EVERY).values())


def test_of_one_that_stands_changes_nothing(running: CallerRig) -> None:
    before = running.state()
    assert running.reassert_caller("r.1") == "again"
    assert running.state() == before


class TestAfterTheStoreWasEmptied:
    @pytest.fixture
    def emptied(self, running: CallerRig) -> CallerRig:
        running.client.delete(*running.keys.values())
        return running

    def test_takes_the_place_and_nothing_else(self, emptied: CallerRig) -> None:
        assert emptied.reassert_caller("r.1") == "done"
        assert taken(emptied) == [0, 0, 1, 0]
        assert emptied.renew_caller("r.1") == []
        assert all(ttl > 0 for ttl in emptied.ttls().values())

    def test_repeated_changes_nothing(self, emptied: CallerRig) -> None:
        emptied.reassert_caller("r.1")
        before = emptied.state()
        assert emptied.reassert_caller("r.1") == "again"
        assert emptied.state() == before

    def test_is_charged_for_what_it_uses_when_it_ends(self, emptied: CallerRig) -> None:
        emptied.reassert_caller("r.1")
        emptied.reserve("r.2", EVERY, **ANOTHER)
        emptied.settle_caller("r.1", tokens=100, nanousd=30)
        assert taken(emptied) == [1, 400, 1, 80]

    def test_takes_nothing_from_others_when_it_was_never_sent(self, emptied: CallerRig) -> None:
        emptied.reassert_caller("r.1")
        emptied.reserve("r.2", EVERY, **ANOTHER)
        emptied.settle_caller("r.1", outcome="unused")
        assert taken(emptied) == [1, 300, 1, 50]

    def test_is_never_refused(self, emptied: CallerRig) -> None:
        one = scope(max_parallel_requests=1)
        emptied.reserve("r.2", one)
        assert emptied.reassert_caller("r.1") == "done"
        assert emptied.taken(one) == {"key:alice max_parallel_requests": 2}


class TestAfterItHasLapsed:
    """Its replica was gone for longer than a lease."""

    @pytest.fixture
    def lapsed(self, running: CallerRig) -> CallerRig:
        running.later(LEASE_MS)
        running.reap_caller()
        return running

    def test_takes_its_place_again_beside_what_it_has_taken(self, lapsed: CallerRig) -> None:
        assert lapsed.reassert_caller("r.1") == "done"
        assert taken(lapsed) == [1, 400, 1, 70]
        assert lapsed.client.exists(lapsed.keys["lapsed"]) == 0

    def test_ends_like_any_other(self, lapsed: CallerRig) -> None:
        lapsed.reassert_caller("r.1")
        assert lapsed.settle_caller("r.1", tokens=100, nanousd=30) == "done"
        assert taken(lapsed) == [1, 100, 0, 30]
        assert lapsed.settle_caller("r.1", tokens=100, nanousd=30) == "gone"

    def test_may_lapse_again(self, lapsed: CallerRig) -> None:
        lapsed.reassert_caller("r.1")
        lapsed.later(LEASE_MS)
        assert lapsed.reap_caller() == 1
        assert taken(lapsed) == [1, 400, 0, 70]
        assert lapsed.settle_caller("r.1", tokens=100, nanousd=30) == "late"
        assert taken(lapsed) == [1, 100, 0, 30]


class TestOfWhichHalfIsLeft:
    def test_without_its_record_gets_that_back(self, running: CallerRig) -> None:
        held = running.held["r.1"]
        running.client.hdel(running.keys["reserved"], "r.1")
        assert running.reassert_caller("r.1") == "done"
        assert running.client.hget(running.keys["reserved"], "r.1") == held
        assert taken(running) == [1, 400, 1, 70]

    def test_without_its_lease_gets_that_back(self, running: CallerRig) -> None:
        running.client.zrem(running.keys["reservations"], "r.1")
        assert running.reassert_caller("r.1") == "done"
        assert running.renew_caller("r.1") == []
        assert taken(running) == [1, 400, 1, 70]


def test_of_what_holds_nothing_known_is_our_own_bug(callers: CallerRig) -> None:
    with pytest.raises(ResponseError, match="BADARG"):
        callers.reassert_caller("r.1", "novelty=1")
