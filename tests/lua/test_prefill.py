"""Prefill: a prompt is charged where it goes, until its first output or the end of its claim."""

from __future__ import annotations

from typing import ClassVar

import pytest

from gateway.state.policy import Policy
from tests.lua.rig import CALLER, LEASE_MS, OWN, Rig, prompt

ELEPHANT = 200_000
OTHER = "fedcba9876543210"


@pytest.fixture(autouse=True)
def policy(rig: Rig) -> None:
    rig.policy = Policy(affinity=False)


class TestTheCharge:
    def test_is_the_whole_prompt_where_nothing_is_cached(self, rig: Rig) -> None:
        reply = rig.admit("r.1", prompt=prompt(1_000))

        assert (reply.tokens, reply.elephant, reply.cached_tokens) == (1_000, 0, 0)
        assert rig.fields() == {
            "a:inflight": "1",
            "a:prefill_tokens": "1000",
            f"a:own:{OWN}": "1000",
        }
        assert rig.holding("r.1") == f"location=a lease_ms={LEASE_MS} tokens=1000 caller={OWN}"

    def test_adds_up_by_endpoint_and_by_caller(self, rig: Rig) -> None:
        rig.admit("r.1", prompt=prompt(1_000))
        rig.admit("r.2", prompt=prompt(200))
        rig.admit("r.3", prompt=prompt(30, caller=OTHER))
        rig.admit("r.4", "b 1", prompt=prompt(4))

        assert rig.field("a:prefill_tokens") == "1230"
        assert rig.field(f"a:own:{OWN}") == "1200"
        assert rig.field(f"a:own:{OTHER[:8]}") == "30"
        assert rig.field("b:prefill_tokens") == "4"

    @pytest.mark.parametrize(
        ("cached", "charged"), [(0, 1_000), (400, 600), (1_000, 0), (5_000, 0)]
    )
    def test_is_what_is_not_cached_and_never_negative(
        self, rig: Rig, cached: int, charged: int
    ) -> None:
        rig.put_hint("a", cached)

        assert rig.admit("r.1", prompt=prompt(1_000)).tokens == charged
        assert int(rig.field("a:prefill_tokens") or 0) == charged

    def test_counts_an_elephant(self, rig: Rig) -> None:
        reply = rig.admit("r.1", prompt=prompt(ELEPHANT))

        assert reply.elephant == 1
        assert rig.field("a:elephants") == "1"
        assert "elephant=1" in (rig.holding("r.1") or "")

    def test_of_another_conversation_is_nothing_and_yet_an_elephant(self, rig: Rig) -> None:
        """Its size in waiting is a guess in its favour; what it may block is not."""
        rig.put_hint("a", 500_000, fingerprint="one", anchor="9:one")

        reply = rig.admit("r.1", prompt=prompt(500_000, fingerprint="another"))

        assert (reply.tokens, reply.elephant) == (0, 1)
        assert (reply.cached_tokens, reply.anchor) == (0, "")
        assert rig.fields() == {"a:inflight": "1", "a:elephants": "1"}

    @pytest.mark.parametrize("fingerprint", ["one", ""], ids=["the same", "not known"])
    def test_of_the_same_conversation_names_what_is_cached(
        self, rig: Rig, fingerprint: str
    ) -> None:
        rig.put_hint("a", 400_000, fingerprint="one", anchor="9:one")

        reply = rig.admit("r.1", prompt=prompt(500_000, fingerprint=fingerprint))

        assert (reply.tokens, reply.elephant) == (100_000, 0)
        assert (reply.cached_tokens, reply.anchor) == (400_000, "9:one")

    def test_of_an_unknown_caller_is_the_whole_prompt_and_nobodys_own(self, rig: Rig) -> None:
        rig.put_hint("a", 400)

        assert rig.admit("r.1", prompt=prompt(1_000, caller="")).tokens == 1_000
        assert rig.fields() == {"a:inflight": "1", "a:prefill_tokens": "1000"}

    def test_of_an_unknown_size_is_nothing(self, rig: Rig) -> None:
        rig.admit("r.1", prompt=prompt(0))

        assert rig.fields() == {"a:inflight": "1"}

    @pytest.mark.parametrize("order", ["declared", "pinned"])
    def test_is_made_in_any_order(self, rig: Rig, order: str) -> None:
        assert rig.admit("r.1", order=order, u=(), prompt=prompt(1_000)).tokens == 1_000

    def test_is_not_made_when_it_is_switched_off(self, rig: Rig) -> None:
        rig.policy = Policy(affinity=False, prefill=False)

        assert rig.admit("r.1", prompt=prompt(ELEPHANT)).tokens == 0
        assert rig.fields() == {"a:inflight": "1"}

    def test_is_answered_alike_when_the_claim_is_repeated(self, rig: Rig) -> None:
        first = rig.admit("r.1", prompt=prompt(ELEPHANT))
        before = rig.state()

        again = rig.admit("r.1", prompt=prompt(ELEPHANT))

        assert (again.location, again.tokens, again.elephant) == ("a", ELEPHANT, 1)
        assert (first.tokens, first.elephant) == (ELEPHANT, 1)
        assert rig.state() == before

    def test_of_a_refused_attempt_is_not_written(self, rig: Rig) -> None:
        rig.open_circuit()
        before = rig.state()

        assert not rig.admit("r.1", prompt=prompt(ELEPHANT)).is_admitted
        assert rig.state() == before


class TestWhatEndsTheCharge:
    @pytest.fixture(autouse=True)
    def charged(self, rig: Rig) -> None:
        """An elephant of ours, and a small prompt of somebody else's."""
        rig.admit("r.1", prompt=prompt(ELEPHANT))
        rig.admit("r.2", prompt=prompt(7, caller=OTHER))

    def left(self, rig: Rig) -> dict[str, str]:
        names = ("prefill_tokens", "elephants", "own:")
        return {
            name: value
            for name, value in rig.fields().items()
            if name.removeprefix("a:").startswith(names)
        }

    OTHERS: ClassVar = {"a:prefill_tokens": "7", f"a:own:{OTHER[:8]}": "7"}

    def test_the_first_token_does_and_leaves_the_place_in_flight(self, rig: Rig) -> None:
        rig.first_token("r.1")

        assert self.left(rig) == self.OTHERS
        assert rig.field("a:inflight") == "2"
        assert rig.holding("r.1") == f"location=a lease_ms={LEASE_MS} first=1"

    @pytest.mark.parametrize("outcome", ["success", "failure", "auth", "connect", "neutral"])
    def test_the_settlement_does(self, rig: Rig, outcome: str) -> None:
        rig.settle("r.1", outcome)

        assert self.left(rig) == self.OTHERS

    def test_the_lease_does(self, rig: Rig) -> None:
        rig.renew("r.2", lease_ms=10 * LEASE_MS)
        rig.later(LEASE_MS)
        rig.reap()

        assert self.left(rig) == self.OTHERS

    def test_the_lease_does_in_the_next_admission(self, rig: Rig) -> None:
        rig.later(LEASE_MS)
        rig.admit("r.3", "b 1")

        assert self.left(rig) == {}

    @pytest.mark.parametrize("then", ["first_token", "settle", "reap"])
    def test_only_once(self, rig: Rig, then: str) -> None:
        rig.renew("r.2", lease_ms=10 * LEASE_MS)
        rig.first_token("r.1")
        rig.first_token("r.1")
        if then == "settle":
            rig.settle("r.1")
            rig.settle("r.1")
        elif then == "reap":
            rig.later(LEASE_MS)
            rig.reap()

        assert self.left(rig) == self.OTHERS

    def test_never_goes_below_nothing_when_counts_were_edited(self, rig: Rig) -> None:
        rig.put({"a:prefill_tokens": 5, "a:elephants": "x", f"a:own:{OWN}": -3})

        rig.settle("r.1")

        assert self.left(rig) == {f"a:own:{OTHER[:8]}": "7"}


def test_callers_own_prefill_is_named_by_part_of_its_digest_alone(rig: Rig) -> None:
    rig.admit("r.1", prompt=prompt(5))

    assert not any(CALLER in name for name in rig.fields())
