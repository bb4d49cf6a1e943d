"""Behaviour to match, case by case: what the tests by topic leave out."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gateway.state.keys import Keys
from gateway.state.policy import Policy
from tests.lua.rig import CALLER, PIN_MS, Rig, prompt
from tests.redis_servers import ScriptStore

OVER_CEILING = 150_001
SAID = prompt(100)


def test_two_thousand_draws_follow_the_weights_where_nothing_waits(rig: Rig) -> None:
    rig.policy = Policy(affinity=False)
    rng = random.Random(4)

    drawn = Counter(
        rig.admit(f"r.{n}", "a 0.9 b 0.1", u=(rng.random(),) * 4).location for n in range(2_000)
    )

    assert drawn["a"] > 3 * drawn["b"] > 0


def test_a_small_request_goes_to_the_only_route_however_loaded(rig: Rig) -> None:
    rig.put({"a:prefill_tokens": 900_000, "a:elephants": 5})

    reply = rig.admit("r.1", "a 1", prompt=SAID)

    assert (reply.location, reply.passed_over()) == ("a", {})


class TestTheEndpointThatAPinHasLeft:
    @pytest.fixture(autouse=True)
    def over_the_ceiling(self, rig: Rig) -> None:
        rig.put_pin("a")
        rig.put({"a:prefill_tokens": OVER_CEILING})

    def test_is_not_drawn_though_its_weight_and_the_number_are_for_it(self, rig: Rig) -> None:
        assert rig.admit("r.1", "a .9 b .1", u=(0.0, 0.0), prompt=SAID).location == "b"

    def test_is_drawn_where_there_is_no_other(self, rig: Rig) -> None:
        reply = rig.admit("r.1", "a 1", u=(0.0, 0.0), prompt=SAID)

        assert (reply.location, reply.pin, reply.passed_over()) == ("a", "made", {})

    def test_changes_nothing_where_it_is_no_candidate(self, rig: Rig) -> None:
        reply = rig.admit("r.1", "b .9 c .1", u=(0.0, 0.0), prompt=SAID)

        assert (reply.location, reply.passed_over()) == ("b", {})


def test_models_keep_the_same_caller_apart(store_server: ScriptStore, keys: Keys) -> None:
    one, other = Rig(store_server, keys, "x"), Rig(store_server, keys, "y")
    one.admit("r.1", "a 1 b 1", u=(0.0,), prompt=SAID)

    reply = other.admit("r.2", "a 1 b 1", u=(0.99,), prompt=SAID)

    assert (reply.location, reply.pin) == ("b", "made")
    assert (one.pin(), other.pin()) == ("a", "b")


def test_without_a_caller_nothing_is_remembered(rig: Rig) -> None:
    nobody = prompt(1_000, caller="")
    rig.admit("r.1", prompt=nobody)
    rig.first_token("r.1", prompt=nobody)
    rig.settle("r.1", prompt=nobody)

    assert not rig.ttls().keys() & {"pin", "hint"}
    assert not rig.client.keys(f"{rig.keys['pin'].removesuffix(CALLER)}*")


def test_a_thousand_pins_die_by_themselves(rig: Rig) -> None:
    callers = [f"{number:016x}" for number in range(1_001)]
    for caller in callers:
        rig.admit(f"r.{caller}", prompt=prompt(0, caller=caller))

    pins = rig.client.keys(f"{rig.keys['pin'].removesuffix(CALLER)}*")
    assert len(pins) == len(callers)
    assert all(0 < rig.client.pttl(pin) <= PIN_MS for pin in pins)


@pytest.mark.parametrize("tokens", [0, -5])
def test_a_prompt_of_no_size_is_charged_nothing(rig: Rig, tokens: int) -> None:
    reply = rig.admit("r.1", prompt=prompt(tokens))

    assert (reply.tokens, reply.elephant) == (0, 0)
    assert rig.fields() == {"a:inflight": "1"}


def test_releases_beyond_the_first_and_of_nobody_change_nothing(rig: Rig) -> None:
    rig.admit("r.1", prompt=prompt(1_000))
    assert rig.field("a:prefill_tokens") == "1000"

    statuses = [rig.settle(claim).status for claim in ("r.1", "r.1", "r.1", "nobody.1")]

    assert statuses == ["done", "gone", "gone", "gone"]
    assert rig.fields() == {}
