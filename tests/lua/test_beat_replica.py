"""beat_replica: who lives, by the server's clock."""

from __future__ import annotations

import pytest

from tests.lua.rig import MINUTE, START_MS, Rig

TTL_MS = 6_000


def replicas(rig: Rig) -> dict[str, str]:
    return rig.client.hgetall(rig.keys["replicas"])


def test_first_replica_is_alone(rig: Rig) -> None:
    assert rig.beat("r1", "host=h version=1") == 1
    assert replicas(rig) == {"r1": f"seen_ms={START_MS} host=h version=1"}


def test_repeated_counts_once(rig: Rig) -> None:
    rig.beat("r1")

    assert rig.beat("r1") == 1


@pytest.mark.parametrize(("age_ms", "live"), [(TTL_MS - 1, 2), (TTL_MS, 1), (TTL_MS + 1, 1)])
def test_replica_is_live_for_its_ttl(rig: Rig, age_ms: int, live: int) -> None:
    rig.beat("r1")
    rig.later(age_ms)

    assert rig.beat("r2") == live


def test_dead_replica_is_shown_for_a_while_and_then_forgotten(rig: Rig) -> None:
    rig.beat("r1")
    rig.later(MINUTE)
    rig.beat("r2")
    assert replicas(rig).keys() == {"r1", "r2"}

    rig.later(1)
    rig.beat("r2")
    assert replicas(rig).keys() == {"r2"}


def test_leaving_replica_is_gone_at_once_and_counts_the_others(rig: Rig) -> None:
    rig.beat("r1")
    rig.beat("r2")

    assert rig.beat("r2", "") == 1
    assert replicas(rig).keys() == {"r1"}


def test_last_one_to_leave_leaves_nothing(rig: Rig) -> None:
    rig.beat("r1")

    assert rig.beat("r1", "") == 0
    assert rig.ttls() == {}


def test_key_dies_with_the_last_replica(rig: Rig) -> None:
    rig.beat("r1")

    assert 0 < rig.ttls()["replicas"] <= MINUTE


@pytest.mark.parametrize("nonsense", ["", "x", "seen_ms=x", "seen_ms=-5", f"seen_ms={'9' * 40}"])
def test_nonsense_is_a_dead_replica_and_goes(rig: Rig, nonsense: str) -> None:
    rig.client.hset(rig.keys["replicas"], "r2", nonsense)

    assert rig.beat("r1") == 1
    assert replicas(rig).keys() == {"r1"}


def test_small_step_back_of_the_clock_kills_nobody(rig: Rig) -> None:
    rig.beat("r1")
    rig.later(-4_999)

    assert rig.beat("r2") == 2
