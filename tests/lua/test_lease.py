"""lease: one coordinator at a time, and an epoch that only rises."""

from __future__ import annotations

import pytest

from tests.lua.rig import LEASE_MS, MINUTE, SECOND, START_MS, Rig

START_S = START_MS // 1000


def lease(rig: Rig, holder: str, *, epoch: int = 0, lease_ms: int = LEASE_MS) -> list[object]:
    return rig.run("lease", holder=holder, epoch=epoch, lease_ms=lease_ms, about="host=h")


def record(rig: Rig) -> dict[str, str]:
    return rig.client.hgetall(rig.keys["lease"])


def test_who_comes_first_has_it_under_the_time_in_seconds(rig: Rig) -> None:
    assert lease(rig, "c1") == ["held", START_S, "c1", LEASE_MS]
    assert record(rig) == {
        "holder": "c1",
        "epoch": str(START_S),
        "until_ms": str(START_MS + LEASE_MS),
        "lease_ms": str(LEASE_MS),
        "about": "host=h",
    }


def test_renewed_it_keeps_its_epoch(rig: Rig) -> None:
    lease(rig, "c1")
    rig.later(LEASE_MS - 1)

    assert lease(rig, "c1", epoch=START_S) == ["held", START_S, "c1", LEASE_MS]
    assert record(rig)["until_ms"] == str(START_MS + 2 * LEASE_MS - 1)


@pytest.mark.parametrize(
    ("after_ms", "status"), [(LEASE_MS - 1, "taken"), (LEASE_MS, "held"), (LEASE_MS + 1, "held")]
)
def test_another_gets_it_when_it_has_run_out_and_no_sooner(
    rig: Rig, after_ms: int, status: str
) -> None:
    lease(rig, "c1")
    rig.later(after_ms)

    assert lease(rig, "c2")[0] == status


def test_one_that_is_refused_learns_who_has_it_and_writes_nothing(rig: Rig) -> None:
    lease(rig, "c1")
    rig.later(SECOND)
    before = rig.state()

    assert lease(rig, "c2") == ["taken", START_S, "c1", LEASE_MS - SECOND]
    assert rig.state() == before


def test_holder_that_comes_late_keeps_it_under_the_same_epoch_if_nobody_came(rig: Rig) -> None:
    lease(rig, "c1")
    rig.later(10 * LEASE_MS)

    assert lease(rig, "c1", epoch=START_S)[:2] == ["held", START_S]


def test_holder_that_comes_after_another_has_lost_it(rig: Rig) -> None:
    lease(rig, "c1")
    rig.later(LEASE_MS)
    lease(rig, "c2")

    assert lease(rig, "c1", epoch=START_S)[:3] == ["taken", START_S + LEASE_MS // 1000, "c2"]


class TestANewHoldersEpoch:
    def test_is_above_the_last_one_however_fast_they_change(self, rig: Rig) -> None:
        epochs = [lease(rig, f"c{n}", lease_ms=1)[1] for n in range(5) if rig.later(1) is None]

        assert epochs == [START_S + n for n in range(5)]

    def test_is_above_its_own_last_one_where_the_record_was_lost(self, rig: Rig) -> None:
        rig.client.delete(rig.keys["lease"])

        assert lease(rig, "c1", epoch=START_S + 7)[1] == START_S + 8

    def test_is_above_all_earlier_ones_where_the_record_was_lost(self, rig: Rig) -> None:
        lease(rig, "c1")
        rig.later(SECOND)
        rig.client.delete(rig.keys["lease"])

        assert lease(rig, "c2")[1] == START_S + 1

    def test_is_above_all_that_it_knows_of_where_an_old_record_of_its_own_was_put_back(
        self, rig: Rig
    ) -> None:
        lease(rig, "c1")
        rig.later(SECOND)

        assert lease(rig, "c1", epoch=START_S + 9)[:2] == ["held", START_S + 10]
        assert lease(rig, "c1", epoch=START_S + 10)[:2] == ["held", START_S + 10]

    def test_does_not_fall_with_the_clock(self, rig: Rig) -> None:
        lease(rig, "c1")
        rig.later(-MINUTE)

        assert lease(rig, "c2")[:2] == ["held", START_S + 1]


class TestLeft:
    def test_it_is_free_at_once(self, rig: Rig) -> None:
        lease(rig, "c1")

        assert lease(rig, "c1", lease_ms=0)[0] == "left"
        assert lease(rig, "c2")[:2] == ["held", START_S + 1]

    def test_by_somebody_else_it_stays(self, rig: Rig) -> None:
        lease(rig, "c1")
        before = rig.state()

        assert lease(rig, "c2", lease_ms=0)[0] == "taken"
        assert rig.state() == before

    def test_by_somebody_else_after_its_end_nothing_is_written(self, rig: Rig) -> None:
        lease(rig, "c1")
        rig.later(LEASE_MS)
        before = rig.state()

        assert lease(rig, "c2", lease_ms=0)[0] == "left"
        assert rig.state() == before


@pytest.mark.parametrize(
    "fields",
    [
        {"until_ms": START_MS + LEASE_MS + 1, "lease_ms": LEASE_MS},
        {"until_ms": "junk", "lease_ms": "junk"},
        {"until_ms": "9" * 40, "lease_ms": LEASE_MS},
    ],
    ids=["further away than its length", "junk", "huge"],
)
def test_deadline_that_cannot_be_is_void(rig: Rig, fields: dict[str, object]) -> None:
    rig.client.hset(rig.keys["lease"], mapping={"holder": "c1", "epoch": 5, **fields})

    assert lease(rig, "c2")[:2] == ["held", START_S]


def test_it_is_read_with_the_time(rig: Rig) -> None:
    lease(rig, "c1")
    rig.later(SECOND)

    status, now_ms, fields, published = rig.run("coordinator")

    assert (status, now_ms, published) == ("done", START_MS + SECOND, [])
    assert dict(zip(fields[::2], fields[1::2], strict=True)) == record(rig)
