"""Pools of accounts: quotas as their providers report them, and places with leases."""

from __future__ import annotations

import pytest

from gateway.state.keys import Keys
from tests.lua.rig import LEASE_MS
from tests.lua.supply_rig import EPOCH, SupplyRig
from tests.redis_servers import ScriptStore


@pytest.fixture
def supply(store_server: ScriptStore, keys: Keys) -> SupplyRig:
    """The scripts of a fresh pool."""
    return SupplyRig(store_server, keys)


def take_each(supply: SupplyRig, *claims: str) -> list[str]:
    return [supply.take(claim) for claim in claims]


class TestAQuota:
    def test_is_not_used_until_somebody_has_reported_it(self, supply: SupplyRig) -> None:
        before = supply.state()

        assert supply.take("r.1") == "unknown"
        assert supply.used() is None
        assert supply.state() == before

    def test_is_used_to_its_last_request_and_no_further(self, supply: SupplyRig) -> None:
        supply.report(used=497, limit=500)
        supply.later(1)
        taken = take_each(supply, "r.1", "r.2", "r.3", "r.4")

        assert taken == ["taken", "taken", "taken", "exhausted"]
        assert supply.used() == 500

    def test_is_taken_of_once_however_often_it_is_repeated(self, supply: SupplyRig) -> None:
        supply.report(used=0, limit=1)
        supply.later(1)

        assert take_each(supply, "r.1", "r.1", "r.2") == ["taken", "taken", "exhausted"]

    def test_that_is_exhausted_refuses_and_writes_nothing(self, supply: SupplyRig) -> None:
        supply.report(used=500, limit=500)
        before = supply.state()

        assert supply.take("r.1") == "exhausted"
        assert supply.state() == before

    def test_counts_what_was_taken_after_its_provider_was_asked_on_top(
        self, supply: SupplyRig
    ) -> None:
        supply.report(used=0, limit=10)
        supply.later(10)
        supply.take("r.1")
        asked_ms = supply.now_ms
        supply.later(1)
        supply.take("r.2")
        supply.later(100)
        supply.report(used=1, limit=10, as_of_ms=asked_ms)

        assert supply.used() == 2
        assert supply.client.zrange(supply.keys["taken"], 0, -1) == ["r.2"]

    def test_begins_anew_by_itself_when_its_time_has_come(self, supply: SupplyRig) -> None:
        supply.report(used=5, limit=5, reset_at_ms=supply.now_ms + 1000)
        supply.later(999)
        before = supply.take("r.1")
        supply.later(1)
        at_reset = supply.used()
        supply.later(1)

        assert (before, at_reset) == ("exhausted", 0)
        assert take_each(supply, *(f"r.{n}" for n in range(2, 8))) == ["taken"] * 5 + ["exhausted"]

    def test_gets_back_what_was_never_sent_and_nothing_else(self, supply: SupplyRig) -> None:
        supply.report(used=0, limit=9)
        supply.later(1)
        take_each(supply, "r.1", "r.2")
        supply.release("r.1", unsent=1)
        supply.release("r.2")
        supply.release("r.2")

        assert supply.used() == 1

    def test_may_have_a_limit_that_is_no_whole_number(self, supply: SupplyRig) -> None:
        supply.report(used=0.25, limit=1.5)
        supply.later(1)

        assert take_each(supply, "r.1", "r.2") == ["taken", "exhausted"]

    def test_is_not_reported_by_an_older_coordinator(self, supply: SupplyRig) -> None:
        supply.report(used=1, limit=9, epoch=EPOCH + 1)
        before = supply.state()

        assert supply.report(used=5, limit=9, epoch=EPOCH) == "fenced"
        assert supply.state() == before

    @pytest.mark.parametrize("nonsense", ["", "x", "nan", "inf", "-1"])
    def test_edited_into_nonsense_is_unknown(self, supply: SupplyRig, nonsense: str) -> None:
        supply.report(used=1, limit=9)
        supply.client.hset(supply.keys["quota"], "used", nonsense)

        assert supply.take("r.1") == "unknown"


class TestPlaces:
    def test_are_as_many_as_may_be(self, supply: SupplyRig) -> None:
        assert [supply.place(claim) for claim in ("r.1", "r.2", "r.3")] == [
            "taken",
            "taken",
            "full",
        ]
        supply.release("r.1")
        assert supply.place("r.3") == "taken"

    def test_are_refused_without_a_write(self, supply: SupplyRig) -> None:
        supply.place("r.1"), supply.place("r.2")
        before = supply.state()

        assert supply.place("r.3") == "full"
        assert supply.state() == before

    def test_are_taken_once_however_often_that_is_repeated(self, supply: SupplyRig) -> None:
        assert [supply.place("r.1") for _ in range(3)] == ["taken"] * 3
        assert supply.places() == 1

    def test_come_back_when_nobody_renews_them(self, supply: SupplyRig) -> None:
        supply.place("r.1"), supply.place("r.2")
        supply.later(LEASE_MS - 1)
        supply.renew("r.2")
        refused = supply.place("r.3")
        supply.later(1)

        assert (refused, supply.place("r.3"), supply.place("r.4")) == ("full", "taken", "full")

    def test_of_the_dead_come_back_though_nobody_takes_another(self, supply: SupplyRig) -> None:
        supply.place("dead.1"), supply.place("r.1")
        supply.later(LEASE_MS - 1)
        supply.renew("r.1")
        assert supply.reap() == 0

        supply.later(1)

        assert supply.reap() == 1
        assert supply.client.zrange(supply.keys["places"], 0, -1) == ["r.1"]

    def test_that_were_lost_are_named_and_put_back_when_asked_for(self, supply: SupplyRig) -> None:
        supply.place("r.1")
        supply.client.delete(supply.keys["places"])

        assert supply.renew("r.1") == ["r.1"]
        assert supply.places() == 0
        assert supply.renew("r.1", put_back=1) == []
        assert supply.places() == 1

    def test_that_have_ended_do_not_come_back_by_a_renewal_that_comes_late(
        self, supply: SupplyRig
    ) -> None:
        supply.place("r.1")
        supply.release("r.1")
        supply.renew("r.1")

        assert supply.places() == 0

    def test_whose_deadline_is_further_away_than_a_lease_are_void(self, supply: SupplyRig) -> None:
        supply.place("r.1"), supply.place("r.2")
        supply.later(-10 * LEASE_MS)  # the clock was set back

        assert supply.place("r.3") == "taken"

    def test_count_though_the_clock_has_been_set_back_a_little(self, supply: SupplyRig) -> None:
        supply.place("r.1"), supply.place("r.2")
        supply.later(-1)

        assert supply.place("r.3") == "full"

    def test_need_no_report(self, supply: SupplyRig) -> None:
        assert supply.used() is None
        assert supply.place("r.1") == "taken"
