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


class TestTheSalt:
    def beat(self, rig: Rig, replica: str, salt: str, about: str = "host=h") -> str:
        answer = rig.run("beat_replica", replica=replica, about=about, ttl_ms=TTL_MS, salt=salt)
        return answer[2]

    def test_that_came_first_stands(self, rig: Rig) -> None:
        assert self.beat(rig, "r1", "one") == "one"
        assert self.beat(rig, "r2", "two") == "one"

    def test_outlives_every_replica(self, rig: Rig) -> None:
        self.beat(rig, "r1", "one")

        assert rig.ttls()["salt"] == -1

    def test_is_put_back_into_a_store_that_was_emptied_by_whoever_beats_next(
        self, rig: Rig
    ) -> None:
        self.beat(rig, "r1", "one")
        rig.client.delete(rig.keys["salt"], rig.keys["replicas"])

        assert self.beat(rig, "r1", "one") == "one"
        assert self.beat(rig, "r2", "two") == "one"

    def test_is_neither_asked_for_nor_told_where_a_secret_is_used(self, rig: Rig) -> None:
        assert self.beat(rig, "r1", "") == ""
        assert "salt" not in rig.ttls()

        self.beat(rig, "r2", "one")
        assert self.beat(rig, "r1", "") == ""


def test_replicas_are_told_with_the_time_and_the_salt(rig: Rig) -> None:
    rig.run("beat_replica", replica="r1", about="host=h version=1", ttl_ms=6_000, salt="one")
    rig.later(500)
    before = rig.state()

    _, now_ms, salt, fields = rig.run("replicas")

    assert (now_ms, salt) == (START_MS + 500, "one")
    assert fields == ["r1", f"seen_ms={START_MS} host=h version=1"]
    assert rig.state() == before


def test_there_are_no_replicas_at_first(rig: Rig) -> None:
    assert rig.run("replicas") == ["done", START_MS, "", []]
