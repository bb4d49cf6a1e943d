"""tidy_model, drop_stale_pin: what is no longer configured goes, once nobody holds it any more."""

from __future__ import annotations

import pytest

from tests.lua.rig import LEASE_MS, MINUTE, OWN, START_MS, Rig, prompt

EPOCH = 2_000_000_000


def tidy(
    rig: Rig,
    locations: str = "a b",
    *,
    replicas: str = "r c1",
    limit: int = 128,
    epoch: int = EPOCH,
) -> tuple[str, int, int]:
    status, ended, forgotten = rig.run(
        "tidy_model", epoch=epoch, locations=locations, replicas=replicas, limit=limit
    )
    return status, ended, forgotten


def without_fence(rig: Rig) -> dict[str, str]:
    return {name: value for name, value in rig.fields().items() if name != "fence"}


def test_of_what_is_configured_nothing_is_forgotten(rig: Rig) -> None:
    rig.open_circuit()
    rig.admit("r.1", "b 1", prompt=prompt(9))
    before = without_fence(rig)

    assert tidy(rig) == ("done", 0, 0)
    assert without_fence(rig) == before


def test_every_field_of_an_endpoint_that_is_gone_goes(rig: Rig) -> None:
    rig.open_circuit("gone")
    rig.put({f"gone:own:{OWN}": 5, "gone:conn": "r:1:5", "gone:cooldown": "junk", "a:failures": 1})

    assert tidy(rig)[0] == "done"
    assert without_fence(rig) == {"a:failures": "1"}


def test_endpoint_that_is_gone_stays_while_somebody_uses_it(rig: Rig) -> None:
    rig.admit("r.1", "gone 1", prompt=prompt(9))
    before = without_fence(rig)

    assert tidy(rig) == ("done", 0, 0)
    assert without_fence(rig) == before

    rig.settle("r.1", at="gone")
    rig.put({"gone:failures": 1})
    assert tidy(rig) == ("done", 0, 1)


def test_engine_beside_another_replica_is_configured_wherever_it_is(rig: Rig) -> None:
    rig.put({"local-8000@host-b:failures": 2, "local-9000@host-b:failures": 2})

    tidy(rig, "local-8000@host-a")

    assert without_fence(rig) == {"local-8000@host-b:failures": "2"}


def test_where_it_is_not_known_what_is_configured_nothing_is_forgotten(rig: Rig) -> None:
    rig.put({"gone:failures": 2})

    assert tidy(rig, "*") == ("done", 0, 0)
    assert without_fence(rig) == {"gone:failures": "2"}


class TestAModelThatIsGone:
    def test_keeps_what_is_claimed(self, rig: Rig) -> None:
        rig.admit("r.1", "a 1 b 1")
        rig.put({"b:failures": 1})

        assert tidy(rig, "") == ("done", 0, 1)
        assert without_fence(rig) == {"a:inflight": "1"}
        assert rig.holding("r.1")

    def test_loses_it_with_its_expired_claims(self, rig: Rig) -> None:
        for number in range(50):
            rig.admit(f"r.{number}", prompt=prompt(9))
        rig.later(LEASE_MS)

        assert tidy(rig, "")[:2] == ("done", 50)
        assert rig.ttls().keys() <= {"pin", "hint"}

    def test_loses_them_some_at_a_time(self, rig: Rig) -> None:
        for number in range(50):
            rig.admit(f"r.{number}")
        rig.later(LEASE_MS)

        assert [tidy(rig, "", limit=40)[1] for _ in range(2)] == [40, 10]
        assert rig.ttls() == {}

    def test_takes_its_overrides_with_it_never(self, rig: Rig) -> None:
        rig.override("weight:a", "0.5")

        tidy(rig, "")

        assert rig.ttls().keys() == {"epoch", "overrides"}

    def test_takes_with_it_what_was_learned_of_it(self, rig: Rig) -> None:
        rig.client.xadd(rig.keys["outcomes"], {"end": "at=a how=ok"})
        rig.client.set(rig.keys["profile"], "epoch=1 at_ms=1 {}")

        tidy(rig, "")

        assert rig.ttls() == {}

    def test_that_nobody_has_used_is_nothing(self, rig: Rig) -> None:
        assert tidy(rig, "") == ("done", 0, 0)
        assert rig.ttls() == {}


class TestANoteOfAConnectFailure:
    NOW = START_MS

    @pytest.mark.parametrize(
        ("note", "stays"),
        [
            (f"r:2:{NOW - 2 * MINUTE}", True),
            (f"dead:2:{NOW - MINUTE}", True),
            (f"dead:2:{NOW - MINUTE - 1}", False),
            (f"dead:2:{NOW + MINUTE + 1}", False),
        ],
        ids=["a live replica's", "a witness still", "a dead replica's", "of a clock set back"],
    )
    def test_goes_with_its_replica_once_it_proves_nothing(
        self, rig: Rig, note: str, stays: bool
    ) -> None:
        rig.put({"a:conn": note})

        tidy(rig)

        assert rig.field("a:conn") == (note if stays else None)

    def test_of_others_stays(self, rig: Rig) -> None:
        rig.put({"a:conn": f"dead:2:5 r:1:{START_MS}"})

        tidy(rig)

        assert rig.field("a:conn") == f"r:1:{START_MS}"


class TestTheFence:
    def test_is_raised_by_who_comes(self, rig: Rig) -> None:
        tidy(rig)
        assert rig.field("fence") == str(EPOCH)

        tidy(rig, epoch=EPOCH + 1)
        assert rig.field("fence") == str(EPOCH + 1)

    def test_keeps_an_older_leader_out(self, rig: Rig) -> None:
        rig.open_circuit("gone")
        tidy(rig, "*", epoch=EPOCH + 1)
        before = rig.state()

        assert tidy(rig) == ("fenced", 0, 0)
        assert rig.state() == before

    def test_once_raised_nothing_is_written_where_nothing_is_to_be_done(self, rig: Rig) -> None:
        rig.open_circuit()
        tidy(rig)
        before = rig.state()

        assert tidy(rig) == ("done", 0, 0)
        assert rig.state() == before


def drop(rig: Rig, location: str, epoch: int = EPOCH) -> str:
    return rig.run("drop_stale_pin", epoch=epoch, location=location)[0]


def test_pin_to_an_endpoint_that_is_gone_is_dropped(rig: Rig) -> None:
    rig.put_pin("gone")

    assert drop(rig, "gone") == "done"
    assert rig.pin() is None
    assert drop(rig, "gone") == "gone"


def test_pin_that_leads_elsewhere_by_now_stays(rig: Rig) -> None:
    rig.put_pin("a")

    assert drop(rig, "gone") == "gone"
    assert rig.pin() == "a"


def test_older_leader_drops_no_pin(rig: Rig) -> None:
    rig.put_pin("gone")
    tidy(rig, epoch=EPOCH + 1)

    assert drop(rig, "gone") == "fenced"
    assert rig.pin() == "gone"
