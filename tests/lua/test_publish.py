"""publish: what the coordinator has found out, and never the words of an older one."""

from __future__ import annotations

import pytest

from tests.lua.rig import LEASE_MS, SECOND, START_MS, Rig


def publish(rig: Rig, epoch: int, value: str = "x=1", what: str = "tick") -> list[object]:
    return rig.run("publish", epoch=epoch, what=what, value=value)


def published(rig: Rig) -> dict[str, str]:
    return rig.client.hgetall(rig.keys["published"])


def test_value_stands_there_with_its_epoch_and_time(rig: Rig) -> None:
    assert publish(rig, 7) == ["done", START_MS]
    assert published(rig) == {"tick": f"epoch=7 at_ms={START_MS} x=1"}


@pytest.mark.parametrize("epoch", [7, 8])
def test_same_leader_and_a_newer_one_replace_it(rig: Rig, epoch: int) -> None:
    publish(rig, 7)
    rig.later(SECOND)

    assert publish(rig, epoch, "x=2")[0] == "done"
    assert published(rig) == {"tick": f"epoch={epoch} at_ms={START_MS + SECOND} x=2"}


def test_older_leader_replaces_nothing(rig: Rig) -> None:
    publish(rig, 7)
    before = rig.state()

    assert publish(rig, 6, "x=2") == ["fenced", 0]
    assert rig.state() == before


def test_older_leader_takes_nothing_back(rig: Rig) -> None:
    publish(rig, 7)

    assert publish(rig, 6, "") == ["fenced", 0]
    assert published(rig).keys() == {"tick"}


def test_older_leader_publishes_nothing_new_once_another_has_the_lease(rig: Rig) -> None:
    _, epoch, _, _ = rig.run("lease", holder="c1", epoch=0, lease_ms=LEASE_MS, about="")
    before = rig.state()

    assert publish(rig, epoch - 1) == ["fenced", 0]
    assert rig.state() == before
    assert publish(rig, epoch)[0] == "done"


def test_taken_back_it_is_gone_and_the_others_stay(rig: Rig) -> None:
    publish(rig, 7)
    publish(rig, 7, what="probe:http://a")

    assert publish(rig, 7, "") == ["done", START_MS]
    assert published(rig).keys() == {"probe:http://a"}


@pytest.mark.parametrize("nonsense", ["", "junk", "epoch=x at_ms=5 ", f"epoch={'9' * 40} at_ms=5"])
def test_nonsense_is_replaced(rig: Rig, nonsense: str) -> None:
    rig.client.hset(rig.keys["published"], "tick", nonsense)

    assert publish(rig, 7)[0] == "done"


def test_time_does_not_run_backwards_by_a_small_step_of_the_clock(rig: Rig) -> None:
    publish(rig, 7)
    rig.later(-SECOND)

    assert publish(rig, 7) == ["done", START_MS]
