"""The stream of outcomes: `settle` and `note_probe` write it, `read_outcomes` gives it out, and
`publish_profile` takes it for read."""

from __future__ import annotations

import pytest

from tests.lua.happy import EPOCH
from tests.lua.rig import Rig

WORDS = "at=a how=ok ttft_ms=200 prompt=10 output=5"


def end(rig: Rig, *numbers: int, outcome: str = "success") -> None:
    """Have attempts end, told apart by their tokens."""
    for number in numbers:
        rig.admit(f"r.{number}")
        rig.settle(f"r.{number}", outcome, noted=f"1000 {WORDS} by={number}")


def read(rig: Rig, start: str, *, limit: int = 100, epoch: int = EPOCH) -> list[int]:
    """The numbers of the outcomes read."""
    return [int(words.rpartition("=")[2]) for _, words in entries(rig, start, limit, epoch)]


def entries(rig: Rig, start: str, limit: int = 100, epoch: int = EPOCH) -> list[tuple[str, str]]:
    args = {"epoch": epoch, "reader": "c1", "from": start, "limit": limit}
    status, found = rig.run("read_outcomes", **args)
    assert status == "done"
    return list(zip(found[::2], found[1::2], strict=True))


def publish(rig: Rig, *ids: str, epoch: int = EPOCH) -> str:
    return rig.run("publish_profile", epoch=epoch, value="{}", read=" ".join(ids))[0]


class TestSettle:
    def test_keeps_how_an_attempt_has_ended(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.settle("r.1", noted=f"1000 {WORDS}")

        assert [words for _, words in entries(rig, "0")] == [WORDS]

    def test_keeps_nothing_where_nothing_is_noted(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.settle("r.1")

        assert not rig.client.exists(rig.keys["outcomes"])

    def test_keeps_it_once_however_often_it_is_repeated(self, rig: Rig) -> None:
        end(rig, 1)
        assert rig.settle("r.1", noted=f"1000 {WORDS} by=1").status == "gone"

        assert read(rig, "0") == [1]

    def test_keeps_a_late_one_once(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.later(15_000)
        rig.reap()
        statuses = [rig.settle("r.1", noted=f"1000 {WORDS} by=1").status for _ in range(2)]

        assert (statuses, read(rig, "0")) == (["late", "gone"], [1])

    def test_keeps_about_as_many_as_it_is_told(self, rig: Rig) -> None:
        for number in range(1500):
            rig.client.xadd(rig.keys["outcomes"], {"end": f"{WORDS} by={number}"})
        rig.admit("r.1")
        rig.settle("r.1", noted=f"200 {WORDS}")

        assert 200 <= rig.client.xlen(rig.keys["outcomes"]) < 500


class TestAReader:
    def test_reads_each_once(self, rig: Rig) -> None:
        read(rig, "0")
        end(rig, 1, 2)
        first = read(rig, "next")
        end(rig, 3)

        assert (first, read(rig, "next"), read(rig, "next")) == ([1, 2], [3], [])

    def test_that_begins_reads_what_is_stored_page_by_page(self, rig: Rig) -> None:
        end(rig, 1, 2, 3)
        first = entries(rig, "0", 2)
        rest = entries(rig, first[-1][0], 2)
        end(rig, 4)

        assert [len(first), len(rest)] == [2, 1]
        assert read(rig, "next") == [4]

    def test_that_begins_reads_no_further_back_than_it_says(self, rig: Rig) -> None:
        end(rig, 1, 2)
        last = rig.client.xrange(rig.keys["outcomes"])[-1][0]

        assert read(rig, last) == []

    def test_finds_what_it_has_not_published(self, rig: Rig) -> None:
        read(rig, "0")
        end(rig, 1, 2)
        ids = [id for id, _ in entries(rig, "next")]
        assert publish(rig, ids[0]) == "done"

        assert read(rig, "pending") == [2]
        assert read(rig, "next") == []

    def test_that_begins_leaves_nothing_pending_of_the_one_before(self, rig: Rig) -> None:
        read(rig, "0")
        end(rig, 1)
        read(rig, "next")

        assert read(rig, "0") == [1]
        assert read(rig, "pending") == []

    def test_goes_on_when_the_stream_was_lost(self, rig: Rig) -> None:
        end(rig, 1)
        read(rig, "0")
        rig.client.delete(rig.keys["outcomes"])
        assert read(rig, "next") == []
        end(rig, 2)

        assert read(rig, "next") == [2]

    def test_is_told_of_what_was_cut_off_before_it_had_published_it(self, rig: Rig) -> None:
        read(rig, "0")
        end(rig, 1)
        (one,) = entries(rig, "next")
        rig.client.xdel(rig.keys["outcomes"], one[0])

        assert entries(rig, "pending") in ([(one[0], "")], [])  # servers differ
        assert publish(rig, one[0]) == "done"
        assert read(rig, "pending") == []

    def test_reads_at_most_a_thousand(self, rig: Rig) -> None:
        for number in range(1100):
            rig.client.xadd(rig.keys["outcomes"], {"end": f"{WORDS} by={number}"})

        assert len(read(rig, "0", limit=5000)) == 1000


@pytest.mark.parametrize("call", ["read", "publish", "note"])
def test_an_older_coordinator_is_refused_and_changes_nothing(rig: Rig, call: str) -> None:
    end(rig, 1)
    rig.put({"fence": EPOCH + 1})
    before = rig.state()

    if call == "read":
        args = {"epoch": EPOCH, "reader": "c1", "from": "0", "limit": 10}
        assert rig.run("read_outcomes", **args) == ["fenced", []]
    elif call == "publish":
        assert publish(rig, "1-0") == "fenced"
    else:
        assert rig.run("note_probe", epoch=EPOCH, words=WORDS, keep=10) == ["fenced"]
    assert rig.state() == before


def test_an_older_coordinator_is_given_nothing_once_a_newer_one_has_read(rig: Rig) -> None:
    end(rig, 1)
    read(rig, "0", epoch=EPOCH + 1)
    end(rig, 2)

    args = {"epoch": EPOCH, "reader": "c1", "from": "next", "limit": 10}
    assert rig.run("read_outcomes", **args) == ["fenced", []]
    assert read(rig, "next", epoch=EPOCH + 1) == [2]


def test_a_profile_of_a_newer_coordinator_stays(rig: Rig) -> None:
    assert publish(rig, epoch=EPOCH + 1) == "done"
    before = rig.state()

    assert publish(rig, epoch=EPOCH) == "fenced"
    assert rig.state() == before


def test_a_profile_is_told_with_its_writer_and_its_time(rig: Rig) -> None:
    publish(rig)
    put_down_ms = rig.now_ms
    rig.later(5_000)

    assert rig.run("profile") == [
        "done",
        put_down_ms + 5_000,
        f"epoch={EPOCH} at_ms={put_down_ms} {{}}",
    ]


def test_there_is_no_profile_at_first(rig: Rig) -> None:
    assert rig.run("profile")[2] == ""
