"""Hints: what an endpoint is believed to have cached of a caller's prompts, and for how long."""

from __future__ import annotations

import pytest

from gateway.state.policy import Policy
from tests.lua.rig import START_MS, Rig, prompt

HINT_MS = 1_200_000
OTHER = "fedcba9876543210"
SAID = prompt(1_000, fingerprint="f1", anchor="9:a1")


@pytest.fixture(autouse=True)
def policy(rig: Rig) -> None:
    rig.policy = Policy(affinity=False)


def charge(rig: Rig, tokens: int = 1_000, *, at: str = "a", caller: str = SAID.caller) -> int:
    """What the next prompt would be charged there."""
    told = rig.explain(f"{at} 1", prompt=prompt(tokens, caller=caller))
    assert told.location == at
    return told.tokens


def serve(rig: Rig, claim: str, tokens: int, *, at: str = "a") -> None:
    """A whole stream."""
    rig.admit(claim, f"{at} 1", prompt=prompt(tokens))
    rig.first_token(claim, prompt=prompt(tokens))
    rig.settle(claim, at=at, prompt=prompt(tokens))


def test_admission_alone_leaves_none(rig: Rig) -> None:
    rig.admit("r.1", prompt=SAID)

    assert rig.hint("a") is None


def test_the_first_token_leaves_one_that_dies(rig: Rig) -> None:
    rig.admit("r.1", prompt=SAID)
    rig.first_token("r.1", prompt=SAID)

    end = START_MS + HINT_MS
    assert rig.hint("a") == f"tokens=1000 until_ms={end} generation=0 fingerprint=f1 anchor=9:a1"
    assert 0 < rig.ttls()["hint"] <= HINT_MS


def test_a_success_without_a_first_token_leaves_one(rig: Rig) -> None:
    rig.admit("r.1", prompt=SAID)
    rig.settle("r.1", "success", prompt=SAID)

    assert charge(rig) == 0


def test_a_late_success_leaves_one(rig: Rig) -> None:
    rig.admit("r.1", prompt=SAID)
    rig.later(15_000)
    rig.reap()
    rig.settle("r.1", "success", prompt=SAID)

    assert charge(rig) == 0


@pytest.mark.parametrize("outcome", ["failure", "auth", "connect", "neutral"])
def test_what_ends_without_an_output_leaves_none(rig: Rig, outcome: str) -> None:
    rig.admit("r.1", prompt=SAID)
    rig.settle("r.1", outcome, prompt=SAID)

    assert "hint" not in rig.ttls()


def test_a_success_after_the_first_token_does_not_lengthen_it(rig: Rig) -> None:
    rig.admit("r.1", prompt=SAID)
    rig.first_token("r.1", prompt=SAID)
    before = rig.hint("a")
    rig.later(60_000)
    rig.renew("r.1")
    rig.settle("r.1", "success", prompt=SAID)

    assert rig.hint("a") == before


@pytest.mark.parametrize("said", [prompt(0), prompt(1_000, caller="")], ids=["no size", "no one"])
def test_a_prompt_of_nobody_or_of_no_size_leaves_none(rig: Rig, said: object) -> None:
    rig.admit("r.1", prompt=said)
    rig.first_token("r.1", prompt=said)

    assert "hint" not in rig.ttls()


def test_a_longer_prompt_is_charged_for_the_rest(rig: Rig) -> None:
    serve(rig, "r.1", 1_000)

    assert [charge(rig, tokens) for tokens in (400, 1_000, 1_001, 5_000)] == [0, 0, 1, 4_000]


def test_the_last_prompt_stands_also_when_it_was_shorter(rig: Rig) -> None:
    serve(rig, "r.1", 1_000)
    serve(rig, "r.2", 10)

    assert charge(rig) == 990


def test_endpoints_and_callers_have_each_their_own(rig: Rig) -> None:
    serve(rig, "r.1", 1_000)

    assert charge(rig, at="b") == 1_000
    assert charge(rig, caller=OTHER) == 1_000
    assert charge(rig, caller="") == 1_000


@pytest.mark.parametrize(("ms", "charged"), [(-1, 0), (0, 1_000), (1, 1_000)])
def test_it_stands_for_its_ttl(rig: Rig, ms: int, charged: int) -> None:
    serve(rig, "r.1", 1_000)
    rig.later(HINT_MS + ms)

    assert charge(rig) == charged


def test_a_later_one_elsewhere_does_not_revive_it(rig: Rig) -> None:
    serve(rig, "r.1", 1_000)
    rig.later(HINT_MS - 1)
    serve(rig, "r.2", 1_000, at="b")
    rig.later(1)

    assert (charge(rig, at="a"), charge(rig, at="b")) == (1_000, 0)


def test_a_clock_set_back_far_makes_it_void(rig: Rig) -> None:
    serve(rig, "r.1", 1_000)
    rig.later(-3_600_000)

    assert charge(rig) == 1_000


def test_a_ttl_of_nothing_keeps_none(rig: Rig) -> None:
    rig.policy = Policy(hint_ttl_ms=0)
    serve(rig, "r.1", 1_000)

    assert charge(rig) == 1_000
    assert "hint" not in rig.ttls()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "tokens=1000",
        "tokens=x until_ms=x generation=x fingerprint= anchor=",
        f"tokens=1000 until_ms={'9' * 40} generation=0 fingerprint= anchor=",
        f"tokens=1000 until_ms={START_MS + 1_000} generation=1 fingerprint= anchor=",
        f"tokens=-5 until_ms={START_MS + 1_000} generation=0 fingerprint= anchor=",
    ],
)
def test_nonsense_is_none(rig: Rig, text: str) -> None:
    rig.client.hset(rig.keys["hint"], "a", text)

    assert charge(rig) == 1_000
    assert rig.admit("r.1", prompt=SAID).is_admitted


def test_an_endless_size_is_no_more_than_the_prompt(rig: Rig) -> None:
    text = f"tokens={'9' * 400} until_ms={START_MS + 1_000} generation=0 fingerprint= anchor="
    rig.client.hset(rig.keys["hint"], "a", text)

    assert charge(rig) == 1_000, "what a double cannot hold is nothing"


class TestAFailureOfTheEndpoint:
    """It may have restarted: whatever anybody had cached there is void."""

    @pytest.fixture(autouse=True)
    def served(self, rig: Rig) -> None:
        serve(rig, "r.0", 1_000)
        serve(rig, "r.00", 1_000, at="b")

    @pytest.mark.parametrize("outcome", ["failure", "auth"])
    def test_voids_the_hints_about_it_alone(self, rig: Rig, outcome: str) -> None:
        rig.attempt("r.1", outcome)

        assert (charge(rig, at="a"), charge(rig, at="b")) == (1_000, 0)
        assert rig.field("a:generation") == "1"

    def test_that_says_nothing_of_it_voids_none(self, rig: Rig) -> None:
        rig.attempt("r.1", "neutral", status=400)

        assert charge(rig) == 0
        assert rig.field("a:generation") is None

    def test_to_connect_voids_none_until_a_second_replica_confirms_it(self, rig: Rig) -> None:
        rig.attempt("r1.1", "connect")
        assert charge(rig) == 0

        rig.attempt("r2.1", "connect")
        assert charge(rig) == 1_000
        assert rig.field("a:generation") == "1"

    def test_is_over_for_what_is_served_afterwards(self, rig: Rig) -> None:
        rig.attempt("r.1", "failure")
        rig.attempt("r.2", "failure")
        serve(rig, "r.3", 1_000)

        assert charge(rig) == 0

    def test_after_the_first_token_voids_what_that_has_left(self, rig: Rig) -> None:
        rig.admit("r.1", prompt=SAID)
        rig.first_token("r.1", prompt=SAID)
        rig.settle("r.1", "failure", prompt=SAID)

        assert charge(rig) == 1_000

    def test_is_remembered_though_the_circuit_is_reset(self, rig: Rig) -> None:
        rig.attempt("r.1", "failure")
        rig.run("reset_circuit", location="a")

        assert charge(rig) == 1_000

    @pytest.mark.parametrize("nonsense", ["", "x", "-5", "nan", "inf"])
    def test_is_counted_from_nothing_where_the_count_was_edited(
        self, rig: Rig, nonsense: str
    ) -> None:
        rig.put({"a:generation": nonsense})
        assert charge(rig) == 0

        rig.attempt("r.1", "failure")
        assert rig.field("a:generation") == "1"
