"""renew_caller: reservations in use live on, and those that are lost are named."""

from __future__ import annotations

from tests.lua.caller_rig import CallerRig, scope
from tests.lua.rig import DAY, HOUR, LEASE_MS

PLACES = scope(max_parallel_requests=9)


def test_lengthens_the_lease_from_now_on(callers: CallerRig) -> None:
    callers.reserve("r.1", PLACES)
    callers.later(LEASE_MS - 1)
    assert callers.renew_caller("r.1") == []
    callers.later(LEASE_MS - 1)
    assert callers.reap_caller() == 0
    callers.later(1)
    assert callers.reap_caller() == 1


def test_names_those_that_are_unknown_ended_or_lapsed(callers: CallerRig) -> None:
    callers.reserve("lapsed.1", PLACES)
    callers.later(LEASE_MS)
    callers.reap_caller()
    callers.reserve("r.1", PLACES)
    callers.reserve("ended.1", PLACES)
    callers.settle_caller("ended.1")
    lost = callers.renew_caller("never.1", "r.1", "ended.1", "lapsed.1")
    assert lost == ["never.1", "ended.1", "lapsed.1"]


def test_names_those_of_which_half_the_record_is_left(callers: CallerRig) -> None:
    callers.reserve("r.1", PLACES)
    callers.reserve("r.2", PLACES)
    callers.client.hdel(callers.keys["reserved"], "r.1")
    callers.client.zrem(callers.keys["reservations"], "r.2")
    assert callers.renew_caller("r.1", "r.2") == ["r.1", "r.2"]


def test_makes_nothing_of_what_is_not_there(callers: CallerRig) -> None:
    assert callers.renew_caller("r.1") == ["r.1"]
    assert callers.client.exists(*callers.keys.values()) == 0


def test_keeps_all_that_belongs_to_them(callers: CallerRig) -> None:
    callers.reserve("r.1", PLACES)
    for kind in ("limits", "reservations", "reserved"):
        callers.client.pexpire(callers.keys[kind], HOUR)
    callers.renew_caller("r.1")
    assert min(callers.ttls().values()) > 6 * DAY


def test_shortens_the_life_of_no_budget(callers: CallerRig) -> None:
    callers.reserve("r.1", scope(max_budget=9, budget_duration_ms=30 * DAY))
    callers.renew_caller("r.1")
    assert callers.ttls()["limits"] > 59 * DAY
    callers.reserve("r.2", scope(max_budget=9))
    callers.renew_caller("r.1", "r.2")
    assert callers.ttls()["limits"] == -1
