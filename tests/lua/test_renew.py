"""renew: claims in use keep their lease, and lost ones are named."""

from __future__ import annotations

import pytest

from tests.lua.rig import DAY, LEASE_MS, Rig


def test_on_an_empty_model_knows_nobody_and_writes_nothing(rig: Rig) -> None:
    before = rig.state()

    assert rig.renew("r.1", "r.2") == ["r.1", "r.2"]

    assert rig.state() == before
    assert rig.ttls() == {}


def test_lengthens_a_lease_from_now_on(rig: Rig) -> None:
    rig.admit("r.1")
    rig.later(5_000)

    assert rig.renew("r.1") == []

    assert rig.deadline("r.1") == rig.now_ms + LEASE_MS


def test_repeated_changes_no_more(rig: Rig) -> None:
    rig.admit("r.1")
    rig.renew("r.1")
    deadline = rig.deadline("r.1")

    assert rig.renew("r.1", "r.1") == []
    assert rig.deadline("r.1") == deadline


def test_names_only_those_it_does_not_know(rig: Rig) -> None:
    rig.admit("r.1")
    rig.admit("r.3")
    rig.settle("r.3")

    assert rig.renew("r.1", "r.2", "r.3") == ["r.2", "r.3"]


def test_takes_128_at_once(rig: Rig) -> None:
    claims = [f"r.{i}" for i in range(128)]
    for claim in claims:
        rig.admit(claim)

    assert rig.renew(*claims) == []


def test_renewed_claims_are_not_reaped(rig: Rig) -> None:
    rig.admit("r.1")
    for _ in range(5):
        rig.later(LEASE_MS - 1)
        rig.renew("r.1")

    assert rig.reap() == 0


def test_revives_a_claim_that_nobody_has_reaped_yet(rig: Rig) -> None:
    rig.admit("r.1")
    rig.later(LEASE_MS + 1)

    assert rig.renew("r.1") == []
    assert rig.reap() == 0


@pytest.mark.parametrize("lost", ["claims", "claimed"])
def test_half_a_record_is_not_known(rig: Rig, lost: str) -> None:
    rig.admit("r.1")
    rig.client.delete(rig.keys[lost])

    assert rig.renew("r.1") == ["r.1"]


def test_lengthens_the_life_of_the_keys(rig: Rig) -> None:
    rig.admit("r.1")
    for key in rig.model_keys:
        rig.client.pexpire(key, 60_000)

    rig.renew("r.1")

    assert all(ttl > 6 * DAY for ttl in rig.ttls().values())


def test_small_step_back_of_the_clock_shortens_no_lease(rig: Rig) -> None:
    rig.admit("r.1")
    deadline = rig.deadline("r.1")
    rig.later(-4_999)

    rig.renew("r.1")

    assert rig.deadline("r.1") == deadline
