"""reap: claims whose holder died are ended, exactly, boundedly, and without waiting at any."""

from __future__ import annotations

import pytest

from tests.lua.rig import HOUR, LEASE_MS, MINUTE, Rig

TOMBSTONE_MS = 10 * MINUTE


def test_on_an_empty_model_ends_nothing_and_writes_nothing(rig: Rig) -> None:
    before = rig.state()

    assert rig.reap() == 0

    assert rig.state() == before
    assert rig.ttls() == {}


@pytest.mark.parametrize(("ms", "ended"), [(-1, 0), (0, 1), (1, 1)])
def test_ends_a_claim_at_its_deadline(rig: Rig, ms: int, ended: int) -> None:
    rig.admit("r.1")
    rig.later(LEASE_MS + ms)

    assert rig.reap() == ended
    assert rig.field("a:inflight") == (None if ended else "1")


def test_repeated_ends_nothing_more(rig: Rig) -> None:
    rig.admit("r.1")
    rig.later(LEASE_MS)
    rig.reap()
    before = rig.state()

    assert rig.reap() == 0
    assert rig.state() == before


def test_ends_at_most_so_many(rig: Rig) -> None:
    for i in range(10):
        rig.admit(f"r.{i}")
    rig.later(LEASE_MS)

    assert [rig.reap(4), rig.reap(4), rig.reap(4)] == [4, 4, 2]
    assert rig.fields() == {}


def test_however_many_are_asked_for_a_call_is_bounded(rig: Rig) -> None:
    """Redis waits while a script runs, and Lua cannot unpack any number of ids."""
    dead = {f"r.{i}": rig.now_ms - 1 for i in range(1_005)}
    rig.client.zadd(rig.keys["claims"], dead)
    rig.client.zadd(rig.keys["reaped"], dead)

    assert [rig.reap(1_000_000), rig.reap(1_000_000)] == [1_000, 5]


def test_ends_claims_at_locations_no_longer_configured(rig: Rig) -> None:
    rig.admit("r.1", "long-gone 1")
    rig.later(LEASE_MS)

    assert rig.reap() == 1
    assert rig.fields() == {}


def test_leaves_a_tombstone_that_dies(rig: Rig) -> None:
    rig.admit("r.1")
    rig.later(LEASE_MS)
    rig.reap()

    assert rig.ttls()["reaped"] <= TOMBSTONE_MS
    assert all(ttl > 0 for ttl in rig.ttls().values())


def test_frees_a_probe_whose_holder_died(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(30_000)
    rig.admit("probe.1")
    rig.later(LEASE_MS)

    rig.reap()

    assert rig.field("a:probe") is None
    assert rig.admit("r.1").probe == 1


def test_claim_without_a_holding_is_dropped(rig: Rig) -> None:
    rig.admit("r.1")
    rig.client.hdel(rig.keys["claimed"], "r.1")
    rig.later(LEASE_MS)

    assert rig.reap() == 1
    assert rig.deadline("r.1") is None
    assert rig.settle("r.1", "failure").status == "gone"


class TestAHoldingOfANewerRelease:
    @pytest.fixture(autouse=True)
    def newer(self, rig: Rig) -> None:
        """Claim `n.1` holds something that this release does not know."""
        rig.admit("n.1")
        text = "location=a lease_ms=40000 newer=7"
        rig.client.hset(rig.keys["claimed"], "n.1", text)
        rig.later(LEASE_MS)

    def test_is_postponed_by_its_own_lease(self, rig: Rig) -> None:
        assert rig.reap() == 0

        assert rig.deadline("n.1") == rig.now_ms + 40_000
        assert rig.field("a:inflight") == "1"
        assert rig.holding("n.1") == "location=a lease_ms=40000 newer=7"

    def test_stands_in_nobodys_way(self, rig: Rig) -> None:
        for i in range(6):
            rig.client.hset(rig.keys["claimed"], f"n.{i}", "location=a newer=1")
            rig.client.zadd(rig.keys["claims"], {f"n.{i}": 1})
        rig.admit("r.1")
        rig.later(LEASE_MS)

        assert [rig.reap(4), rig.reap(4)] == [0, 1]

    def test_is_postponed_by_an_admission_too(self, rig: Rig) -> None:
        rig.admit("r.1")

        assert rig.deadline("n.1") == rig.now_ms + 40_000


@pytest.mark.parametrize("lease", ["", " lease_ms=0", f" lease_ms={'9' * 40}", " lease_ms=x"])
def test_holding_that_names_no_sound_lease_is_postponed_by_the_usual_one(
    rig: Rig, lease: str
) -> None:
    rig.admit("r.1")
    rig.client.hset(rig.keys["claimed"], "r.1", f"newer=1{lease}")
    rig.later(LEASE_MS)

    rig.reap()

    assert rig.deadline("r.1") == rig.now_ms + LEASE_MS


class TestAClockThatWasSetBack:
    def test_leaves_a_claim_one_lease_from_now(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.later(-HOUR)

        assert rig.reap() == 0
        assert rig.deadline("r.1") == rig.now_ms + LEASE_MS

        rig.later(LEASE_MS)
        assert rig.reap() == 1

    def test_by_less_than_the_slack_leaves_deadlines_alone(self, rig: Rig) -> None:
        rig.admit("r.1")
        deadline = rig.deadline("r.1")
        rig.later(-4_999)

        rig.reap()

        assert rig.deadline("r.1") == deadline

    def test_recalls_those_behind_a_longer_lease_and_behind_nonsense(self, rig: Rig) -> None:
        # Given, from the furthest deadline on: no holding, a sound long lease, a void short one
        rig.client.zadd(rig.keys["claims"], {"lost.1": rig.now_ms + 5 * HOUR})
        rig.admit("long.1", lease_ms=2 * HOUR)
        rig.admit("r.1")
        rig.client.zadd(rig.keys["claims"], {"r.1": rig.now_ms + HOUR})

        rig.reap()

        assert rig.deadline("lost.1") == rig.now_ms + LEASE_MS
        assert rig.deadline("long.1") == rig.now_ms + 2 * HOUR
        assert rig.deadline("r.1") == rig.now_ms + LEASE_MS


class TestTombstones:
    def members(self, rig: Rig) -> list[str]:
        return rig.client.zrange(rig.keys["reaped"], 0, -1)

    @pytest.fixture(autouse=True)
    def reaped(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.later(LEASE_MS)
        rig.reap()

    @pytest.mark.parametrize(("ms", "left"), [(-1, ["r.1"]), (0, [])])
    def test_are_forgotten_after_ten_minutes(self, rig: Rig, ms: int, left: list[str]) -> None:
        rig.later(TOMBSTONE_MS + ms)
        rig.reap()

        assert self.members(rig) == left

    def test_are_forgotten_when_the_clock_was_set_back(self, rig: Rig) -> None:
        rig.later(-HOUR)
        rig.reap()

        assert self.members(rig) == []
