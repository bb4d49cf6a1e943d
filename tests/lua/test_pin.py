"""Pins: a caller stays on its endpoint while that is good for it, and for others."""

from __future__ import annotations

import re

import pytest

from gateway.state.policy import Policy
from tests.lua.rig import CALLER, DAY, OWN, PIN_MS, START_MS, Rig, prompt

CEILING = 150_000
OTHER = "fedcba9876543210"
FIRST, SECOND = (0.0, 0.0, 0.0), (0.99, 0.99, 0.99)
"""Of two candidates of one weight, `FIRST` draws the first."""
SAID = prompt(100)


def until_ms(rig: Rig) -> int:
    found = re.search(r"until_ms=(\d+)$", rig.client.get(rig.keys["pin"]) or "")
    assert found
    return int(found[1])


def test_the_first_draw_makes_a_pin(rig: Rig) -> None:
    reply = rig.admit("r.1", "a 1 b 1", u=SECOND, prompt=SAID)

    assert (reply.location, reply.pin) == ("b", "made")
    pin = f"location=b created_ms={START_MS} until_ms={START_MS + PIN_MS}"
    assert rig.client.get(rig.keys["pin"]) == pin
    assert 0 < rig.ttls()["pin"] <= PIN_MS


def test_draws_follow_it_and_slide_its_end(rig: Rig) -> None:
    rig.admit("r.0", "a 1 b 1", u=FIRST, prompt=SAID)
    for number in range(1, 20):
        rig.later(PIN_MS - 1)
        reply = rig.admit(f"r.{number}", "a 1 b 1", u=SECOND, prompt=SAID)

        assert (reply.location, reply.pin, reply.drawn) == ("a", "kept", 0)
        assert until_ms(rig) == rig.now_ms + PIN_MS
    assert f"created_ms={START_MS} " in rig.client.get(rig.keys["pin"])


@pytest.mark.parametrize(("ms", "pin"), [(-1, "kept"), (0, "made"), (1, "made")])
def test_it_ends_five_minutes_after_its_last_use(rig: Rig, ms: int, pin: str) -> None:
    rig.admit("r.1", "a 1 b 1", u=FIRST, prompt=SAID)
    rig.later(PIN_MS + ms)

    reply = rig.admit("r.2", "a 1 b 1", u=SECOND, prompt=SAID)

    assert (reply.pin, reply.location) == (pin, "a" if pin == "kept" else "b")
    assert until_ms(rig) == rig.now_ms + PIN_MS


class TestTheCapOnItsAge:
    @pytest.mark.parametrize(("ms", "pin"), [(-1, "kept"), (0, "made"), (1, "made")])
    def test_ends_it_though_it_is_in_use(self, rig: Rig, ms: int, pin: str) -> None:
        rig.policy = Policy(pin_max_age_ms=400_000)
        rig.admit("r.1", "a 1 b 1", u=FIRST, prompt=SAID)
        rig.later(200_000)
        rig.admit("r.2", "a 1 b 1", u=FIRST, prompt=SAID)
        rig.later(200_000 + ms)

        assert rig.admit("r.3", "a 1 b 1", u=SECOND, prompt=SAID).pin == pin

    def test_is_never_passed_by_its_end(self, rig: Rig) -> None:
        rig.policy = Policy(pin_max_age_ms=400_000)
        rig.admit("r.1", prompt=SAID)
        rig.later(200_000)
        rig.admit("r.2", prompt=SAID)

        assert until_ms(rig) == START_MS + 400_000
        assert rig.ttls()["pin"] <= 200_000

    @pytest.mark.parametrize(("age_ms", "pin"), [(399_999, "kept"), (400_000, "made")])
    def test_that_was_lowered_ends_it_at_once(self, rig: Rig, age_ms: int, pin: str) -> None:
        rig.policy = Policy(pin_max_age_ms=400_000)
        rig.put_pin("a", created_ms=rig.now_ms - age_ms)

        assert rig.admit("r.1", "a 1 b 1", u=SECOND, prompt=SAID).pin == pin

    def test_of_nothing_is_none(self, rig: Rig) -> None:
        rig.policy = Policy(pin_max_age_ms=0)
        rig.put_pin("a", created_ms=rig.now_ms - 400 * DAY)

        assert rig.admit("r.1", "a 1 b 1", u=SECOND, prompt=SAID).pin == "kept"
        assert until_ms(rig) == rig.now_ms + PIN_MS


class TestAnEndpointThatMayNotBeUsed:
    def test_behind_an_open_circuit_gives_the_pin_to_another(self, rig: Rig) -> None:
        rig.put_pin("a")
        rig.open_circuit("a")

        reply = rig.admit("r.1", "a 1 b 1", u=FIRST, prompt=SAID)

        assert (reply.location, reply.pin) == ("b", "made")
        assert reply.passed_over() == {"a": "circuit_open"}
        assert rig.pin() == "b"

    @pytest.mark.parametrize("candidates", ["b 1", "b 1 c 1"], ids=["only one", "of two"])
    def test_that_is_no_candidate_gives_the_pin_to_another(self, rig: Rig, candidates: str) -> None:
        rig.put_pin("gone")

        reply = rig.admit("r.1", candidates, u=FIRST, prompt=SAID)

        assert (reply.location, reply.pin) == ("b", "made")
        assert rig.pin() == "b"

    def test_that_was_tried_gives_the_pin_to_another(self, rig: Rig) -> None:
        rig.put_pin("a")

        assert rig.admit("r.1", "a 1 b 1", u=FIRST, tried="a", prompt=SAID).pin == "made"
        assert rig.pin() == "b"

    def test_is_probed_by_a_pinned_caller_like_by_any_other(self, rig: Rig) -> None:
        rig.open_circuit("a")
        rig.later(30_000)
        rig.put_pin("a")

        reply = rig.admit("r.1", "a 1 b 1", u=SECOND, prompt=SAID)

        assert (reply.location, reply.pin, reply.probe) == ("a", "kept", 1)

    def test_alone_leaves_the_pin_as_it_is(self, rig: Rig) -> None:
        rig.put_pin("a")
        rig.open_circuit("a")
        before = rig.state()

        assert not rig.admit("r.1", "a 1", prompt=SAID).is_admitted
        assert rig.state() == before


class TestAnEndpointWhereOthersWait:
    @pytest.mark.parametrize(
        ("others", "pin"), [(CEILING - 1, "kept"), (CEILING, "kept"), (CEILING + 1, "made")]
    )
    def test_is_left_over_the_ceiling(self, rig: Rig, others: int, pin: str) -> None:
        rig.put_pin("a")
        rig.put({"a:prefill_tokens": others})

        reply = rig.admit("r.1", "a 9 b 1", u=FIRST, prompt=SAID)

        assert (reply.pin, reply.location) == (pin, "a" if pin == "kept" else "b")
        assert reply.passed_over() == ({} if pin == "kept" else {"a": "over_affinity_ceiling"})
        assert rig.pin() == reply.location

    def test_is_not_left_for_what_is_the_callers_own(self, rig: Rig) -> None:
        rig.put_pin("a")
        rig.put({"a:prefill_tokens": CEILING + 500_000, f"a:own:{OWN}": 500_000})

        assert rig.admit("r.1", "a 1 b 1", u=SECOND, prompt=SAID).pin == "kept"

    def test_is_still_better_than_none(self, rig: Rig) -> None:
        rig.put_pin("a")
        rig.put({"a:prefill_tokens": CEILING + 1})
        rig.open_circuit("b")

        reply = rig.admit("r.1", "a 1 b 1", prompt=SAID)

        assert (reply.location, reply.pin) == ("a", "made")
        assert reply.passed_over() == {"b": "circuit_open"}

    def test_comes_after_one_that_an_elephant_had_better_leave_alone(self, rig: Rig) -> None:
        rig.put_pin("a")
        rig.put({"a:prefill_tokens": CEILING + 1, "b:elephants": 1})

        assert rig.admit("r.1", "a 1 b 1", u=[0.0] * 4, prompt=prompt(300_000)).location == "b"

    def test_is_kept_when_prefill_is_not_looked_at(self, rig: Rig) -> None:
        rig.policy = Policy(prefill=False)
        rig.put_pin("a")
        rig.put({"a:prefill_tokens": 10 * CEILING})

        assert rig.admit("r.1", "a 1 b 1", u=SECOND, prompt=SAID).pin == "kept"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "location=a",
        "location=a created_ms=x until_ms=y",
        f"location=a created_ms={START_MS} until_ms={'9' * 40}",
        f"location=a created_ms={START_MS} until_ms={START_MS + PIN_MS + 1}",
        f"location=a created_ms={START_MS + 1} until_ms={START_MS + 1_000}",
        f"location=a created_ms=-5 until_ms={START_MS + 1_000}",
        f"location=a created_ms={START_MS} until_ms={START_MS + 1_000} more",
    ],
)
def test_nonsense_is_no_pin_and_is_overwritten(rig: Rig, text: str) -> None:
    rig.client.set(rig.keys["pin"], text)

    reply = rig.admit("r.1", "a 1 b 1", u=SECOND, prompt=SAID)

    assert (reply.location, reply.pin, rig.pin()) == ("b", "made", "b")


def test_a_key_that_is_something_else_is_no_pin_and_is_overwritten(rig: Rig) -> None:
    rig.client.hset(rig.keys["pin"], "location", "a")

    assert rig.admit("r.1", "a 1 b 1", u=SECOND, prompt=SAID).pin == "made"
    assert rig.pin() == "b"


def test_a_clock_set_back_far_makes_it_void(rig: Rig) -> None:
    rig.admit("r.1", "a 1 b 1", u=FIRST, prompt=SAID)
    rig.later(-3_600_000)

    assert rig.admit("r.2", "a 1 b 1", u=SECOND, prompt=SAID).pin == "made"


@pytest.mark.parametrize("order", ["declared", "pinned"])
@pytest.mark.parametrize("affinity", [False, True])
def test_orders_that_do_not_draw_neither_follow_nor_write_it(
    rig: Rig, order: str, affinity: bool
) -> None:
    rig.policy = Policy(affinity=affinity)
    rig.put_pin("b")
    before = rig.client.get(rig.keys["pin"])

    reply = rig.admit("r.1", "a 1 b 1", order=order, u=(), prompt=SAID)

    assert (reply.location, reply.pin) == ("a", "")
    assert rig.client.get(rig.keys["pin"]) == before


def test_without_affinity_it_is_neither_followed_nor_written(rig: Rig) -> None:
    rig.policy = Policy(affinity=False)

    assert rig.admit("r.1", "a 1 b 1", u=FIRST, prompt=SAID).pin == ""
    assert rig.pin() is None

    rig.put_pin("b")
    assert rig.admit("r.2", "a 1 b 1", u=FIRST, prompt=SAID).location == "a"
    assert rig.pin() == "b"


def test_callers_have_each_their_own(rig: Rig) -> None:
    rig.admit("r.1", "a 1 b 1", u=FIRST, prompt=SAID)

    assert rig.admit("r.2", "a 1 b 1", u=SECOND, prompt=prompt(100, caller=OTHER)).pin == "made"
    assert rig.admit("r.3", "a 1 b 1", u=SECOND, prompt=SAID).location == "a"


def test_a_repeated_claim_leaves_it_alone(rig: Rig) -> None:
    rig.admit("r.1", "a 1 b 1", u=FIRST, prompt=SAID)
    rig.later(1_000)
    before = rig.state()

    rig.admit("r.1", "a 1 b 1", u=SECOND, prompt=SAID)

    assert rig.state() == before


class TestASettlement:
    @pytest.fixture(autouse=True)
    def pinned(self, rig: Rig) -> None:
        assert rig.admit("r.1", "a 1 b 1", u=FIRST, prompt=SAID).pin == "made"

    @pytest.mark.parametrize("outcome", ["success", "failure", "auth", "connect", "neutral"])
    @pytest.mark.parametrize("unpin", [True, False])
    def test_drops_it_only_when_told_to(self, rig: Rig, outcome: str, unpin: bool) -> None:
        rig.settle("r.1", outcome, unpin=unpin)

        assert rig.pin() == (None if unpin else "a")

    @pytest.mark.parametrize("elsewhere", ["b", "aa", "a2"])
    def test_leaves_one_that_was_made_elsewhere_since(self, rig: Rig, elsewhere: str) -> None:
        rig.put_pin(elsewhere)

        rig.settle("r.1", "failure", unpin=True)

        assert rig.pin() == elsewhere

    def test_drops_it_late_as_well(self, rig: Rig) -> None:
        rig.later(15_000)
        rig.reap()

        assert rig.settle("r.1", "failure", unpin=True).status == "late"
        assert rig.pin() is None

    def test_of_an_ended_claim_leaves_it(self, rig: Rig) -> None:
        rig.settle("r.1", "neutral", unpin=False)

        assert rig.settle("r.1", "failure", unpin=True).status == "gone"
        assert rig.pin() == "a"

    @pytest.mark.parametrize("text", ["nonsense", ""])
    def test_leaves_nonsense(self, rig: Rig, text: str) -> None:
        rig.client.set(rig.keys["pin"], text)

        assert rig.settle("r.1", "failure", unpin=True).status == "done"
        assert rig.client.get(rig.keys["pin"]) == text

    def test_leaves_a_key_that_is_something_else(self, rig: Rig) -> None:
        rig.client.delete(rig.keys["pin"])
        rig.client.hset(rig.keys["pin"], "location", "a")

        assert rig.settle("r.1", "failure", unpin=True).status == "done"
        assert rig.client.hget(rig.keys["pin"], "location") == "a"


class TestAnOperator:
    def test_reads_it_and_how_long_it_still_stands(self, rig: Rig) -> None:
        rig.admit("r.1", prompt=SAID)
        rig.later(100_000)
        before = rig.state()

        text = f"location=a created_ms={START_MS} until_ms={START_MS + PIN_MS}"
        assert rig.run("pin", of=CALLER) == ["done", text, PIN_MS - 100_000]
        assert rig.state() == before

    def test_reads_that_there_is_none(self, rig: Rig) -> None:
        assert rig.run("pin", of=CALLER) == ["done", "", 0]

    @pytest.mark.parametrize("text", ["nonsense", "location=a created_ms=1 until_ms=5"])
    def test_reads_one_that_stands_no_longer(self, rig: Rig, text: str) -> None:
        rig.client.set(rig.keys["pin"], text)

        assert rig.run("pin", of=CALLER) == ["done", text, 0]

    def test_drops_it_and_learns_what_it_was(self, rig: Rig) -> None:
        rig.put_pin("a", created_ms=1, until_ms=2)

        assert rig.run("drop_pin", of=CALLER)[1] == "location=a created_ms=1 until_ms=2"
        assert rig.pin() is None
        assert rig.run("drop_pin", of=CALLER) == ["done", "", 0]

    @pytest.mark.parametrize("name", ["pin", "drop_pin"])
    def test_finds_no_pin_in_a_key_that_is_something_else(self, rig: Rig, name: str) -> None:
        rig.client.hset(rig.keys["pin"], "location", "a")

        assert rig.run(name, of=CALLER) == ["done", "", 0]
