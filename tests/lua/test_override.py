"""override, overrides and the epoch: changes at run time that no replica can miss."""

from __future__ import annotations

import pytest

from tests.lua.rig import START_MS, Rig, prompt


def fields(rig: Rig) -> dict[str, str]:
    return rig.client.hgetall(rig.keys["overrides"])


def read(rig: Rig) -> tuple[str, dict[str, str]]:
    _, epoch, found = rig.run("overrides")
    return epoch, dict(zip(found[::2], found[1::2], strict=True))


def test_there_are_none_at_first_and_reading_writes_nothing(rig: Rig) -> None:
    before = rig.state()

    assert read(rig) == ("0", {})
    assert rig.state() == before


def test_the_first_one_is_numbered_by_the_time(rig: Rig) -> None:
    assert rig.override("weight:a", "0.5") == ("done", START_MS)
    assert read(rig) == (str(START_MS), {"weight:a": "0.5"})


def test_numbers_rise_also_within_a_millisecond_and_when_the_clock_falls_back(rig: Rig) -> None:
    rig.override("weight:a", "0.5")
    assert rig.override("weight:a", "0.6") == ("done", START_MS + 1)
    rig.later(-3_600_000)
    assert rig.override("weight:a", "0.7") == ("done", START_MS + 2)
    rig.later(7_200_000)
    assert rig.override("weight:a", "0.8") == ("done", START_MS + 3_600_000)


def test_they_have_no_ttl(rig: Rig) -> None:
    rig.override("weight:a", "0.5")

    assert rig.ttls() == {"epoch": -1, "overrides": -1}


def test_removing_one_raises_the_epoch_too(rig: Rig) -> None:
    rig.override("weight:a", "0.5")

    assert rig.override("weight:a", "") == ("done", START_MS + 1)
    assert read(rig) == (str(START_MS + 1), {})
    assert rig.ttls() == {"epoch": -1}


@pytest.mark.parametrize("value", ["0.5", ""], ids=["set", "removed"])
def test_what_changes_nothing_raises_nothing(rig: Rig, value: str) -> None:
    rig.override("weight:a", "0.5")
    rig.override("weight:a", value)
    before = rig.state()

    status, epoch = rig.override("weight:a", value)

    assert (status, epoch) == ("same", int(read(rig)[0]))
    assert rig.state() == before


class TestTheLastRouteInService:
    def test_is_not_taken_out_by_its_weight(self, rig: Rig) -> None:
        rig.override("weight:a", "0")
        before = rig.state()

        assert rig.override("weight:b", "0") == ("none_left", START_MS)
        assert rig.state() == before

    def test_is_not_taken_out_by_its_label(self, rig: Rig) -> None:
        rig.override("weight:a", "0")
        before = rig.state()

        assert rig.override("disabled:two", "1")[0] == "none_left"
        assert rig.state() == before

    def test_is_not_taken_out_with_all_of_its_label(self, rig: Rig) -> None:
        assert rig.override("disabled:one", "1", "a one 1 b one 1")[0] == "none_left"

    @pytest.mark.parametrize("field", ["weight:b", "disabled:two"])
    def test_is_taken_out_by_force(self, rig: Rig, field: str) -> None:
        rig.override("weight:a", "0")

        value = "0" if field == "weight:b" else "1"
        assert rig.override(field, value, force=1)[0] == "done"

    def test_may_change_its_weight(self, rig: Rig) -> None:
        rig.override("weight:a", "0")

        assert rig.override("weight:b", "0.1")[0] == "done"

    def test_is_counted_by_its_configured_weight(self, rig: Rig) -> None:
        assert rig.override("weight:a", "0", "a one 1 b two 0")[0] == "none_left"

    def test_is_counted_by_a_weight_that_an_override_gives(self, rig: Rig) -> None:
        rig.override("weight:b", "1", "a one 1 b two 0")

        assert rig.override("weight:a", "0", "a one 1 b two 0")[0] == "done"

    @pytest.mark.parametrize("nonsense", ["", "x", "nan", "-1", "inf", "-inf"])
    def test_is_counted_by_its_configured_weight_where_the_override_is_nonsense(
        self, rig: Rig, nonsense: str
    ) -> None:
        rig.client.hset(rig.keys["overrides"], "weight:b", nonsense)

        assert rig.override("weight:a", "0", "a one 1 b two 0")[0] == "none_left"
        assert rig.override("weight:a", "0", "a one 1 b two 1")[0] == "done"

    @pytest.mark.parametrize("field", ["weight:a", "disabled:one"])
    def test_is_no_reason_against_removing_an_override(self, rig: Rig, field: str) -> None:
        rig.client.hset(rig.keys["overrides"], field, "0")

        assert rig.override(field, "", "a one 0")[0] == "done"

    def test_is_left_by_one_of_two_who_would_each_have_taken_one(self, rig: Rig) -> None:
        statuses = [rig.override(f"weight:{at}", "0")[0] for at in ("a", "b")]

        assert statuses == ["done", "none_left"]


class TestAnEpochThatWasEdited:
    @pytest.mark.parametrize("nonsense", ["", "x", "-5", "nan", "inf", "1e300"])
    def test_to_nonsense_is_none(self, rig: Rig, nonsense: str) -> None:
        rig.client.set(rig.keys["epoch"], nonsense)

        assert read(rig)[0] == "0"
        assert rig.admit("r.1").is_admitted
        assert rig.override("weight:a", "0.5") == ("done", START_MS)

    def test_to_a_later_one_is_raised_from_there(self, rig: Rig) -> None:
        rig.client.set(rig.keys["epoch"], START_MS + 5, px=60_000)

        assert rig.override("weight:a", "0.5") == ("done", START_MS + 6)
        assert rig.ttls()["epoch"] == -1


class TestAReplicaThatHasReadOthers:
    """Whoever decides by other overrides than those that hold decides nothing."""

    @pytest.mark.parametrize("epoch", [0, START_MS - 1, START_MS + 1])
    def test_is_stale_and_nothing_is_written(self, rig: Rig, epoch: int) -> None:
        rig.override("weight:a", "0.5")
        rig.later(1)
        before = rig.state()

        reply = rig.admit("r.1", epoch=epoch, prompt=prompt())

        assert (reply.status, reply.location, reply.is_stale) == ("stale", "", True)
        assert rig.state() == before

    def test_is_stale_where_there_are_none_any_more(self, rig: Rig) -> None:
        assert rig.admit("r.1", epoch=START_MS).is_stale

    def test_is_told_so_before_anything_is_reaped(self, rig: Rig) -> None:
        rig.admit("dead.1")
        rig.later(15_000)

        assert rig.admit("r.1", epoch=7).is_stale
        assert rig.field("a:inflight") == "1"

    def test_is_told_so_for_a_claim_that_stands(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.override("weight:a", "0.5")

        assert rig.admit("r.1").is_stale

    def test_is_told_so_by_explain(self, rig: Rig) -> None:
        rig.override("weight:a", "0.5")

        assert rig.explain().status == "stale"
        assert rig.explain(epoch=START_MS).status == "admitted"

    def test_is_admitted_once_it_has_read_them(self, rig: Rig) -> None:
        rig.override("weight:a", "0.5")

        assert rig.admit("r.1", epoch=int(read(rig)[0])).is_admitted
        assert rig.holding("r.1") == f"location=a lease_ms=15000 epoch={START_MS}"

    def test_ends_its_claims_all_the_same(self, rig: Rig) -> None:
        rig.admit("r.1", epoch=0)
        rig.admit("r.2", epoch=0)
        rig.override("weight:a", "0.5")

        assert rig.first_token("r.1").status == "done"
        assert rig.settle("r.1").status == "done"
        assert rig.renew("r.2") == []


def test_claims_of_an_epoch_are_undone_like_any_other(rig: Rig) -> None:
    rig.override("weight:a", "0.5")
    rig.admit("r.1", epoch=START_MS, prompt=prompt(5))
    rig.later(15_000)

    assert rig.reap() == 1
    assert rig.fields() == {}
