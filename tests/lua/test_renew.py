"""renew: claims in use keep their lease, and lost ones are named."""

from __future__ import annotations

import pytest

from tests.lua.rig import DAY, LEASE_MS, Rig, prompt


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


class TestAFirstOutput:
    @pytest.fixture(autouse=True)
    def running(self, rig: Rig) -> None:
        rig.admit("r.1", prompt=prompt(1_000))
        rig.admit("r.2", prompt=prompt(30))

    def test_that_nobody_has_told_of_is_named(self, rig: Rig) -> None:
        rig.first_token("r.2")

        assert rig.unheard("r.1", "r.2", firsts="r.1 r.2") == ["r.1"]
        assert rig.deadline("r.1") == rig.now_ms + LEASE_MS

    def test_that_has_not_come_yet_is_not_named(self, rig: Rig) -> None:
        assert rig.unheard("r.1", "r.2", firsts="r.2") == ["r.2"]

    def test_told_again_ends_the_prefill(self, rig: Rig) -> None:
        for claim in rig.unheard("r.1", "r.2", firsts="r.1"):
            rig.first_token(claim)

        assert rig.field("a:prefill_tokens") == "30"
        assert rig.unheard("r.1", "r.2", firsts="r.1") == []

    @pytest.mark.parametrize("lost", ["claims", "claimed"])
    def test_of_a_claim_that_is_lost_is_not_named(self, rig: Rig, lost: str) -> None:
        rig.client.delete(rig.keys[lost])

        assert rig.unheard("r.1", "r.2", firsts="r.1 r.2") == []

    @pytest.mark.parametrize("text", ["nonsense", "location=a newer=1"])
    def test_of_a_holding_that_cannot_be_read_is_not_named(self, rig: Rig, text: str) -> None:
        rig.client.hset(rig.keys["claimed"], "r.1", text)

        assert rig.unheard("r.1", firsts="r.1") == []
