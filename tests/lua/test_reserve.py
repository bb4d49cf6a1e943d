"""The reserve: a candidate that is taken when no other may be, or when it is asked for alone."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.lua.rig import CALLER, Rig, prompt

WHO = prompt(100, caller=CALLER)
ORDERS = pytest.mark.parametrize("order", ["draw", "declared"])


@ORDERS
def test_is_never_taken_while_another_may_be(rig: Rig, order: str) -> None:
    for number in range(50):
        reply = rig.admit(f"r.{number}", "off - a 1 b 1", order=order, u=(number / 50, 0.5))
        assert reply.location in "ab"
        assert reply.reserve == 1


@ORDERS
def test_is_taken_without_a_pin_when_no_other_may_be(rig: Rig, order: str) -> None:
    rig.open_circuit("a")
    reply = rig.admit("r.1", "a 1 off -", order=order, u=(0.5, 0.5), prompt=WHO)
    assert (reply.location, reply.reserve, reply.pin) == ("off", 0, "")
    assert not rig.client.exists(rig.keys["pin"])


def test_a_pin_to_it_is_not_followed(rig: Rig) -> None:
    assert rig.admit("r.1", "off 1", u=(0.5,), prompt=WHO).pin == "made"
    assert rig.admit("r.2", "a 1 off -", u=(0.5,), prompt=WHO).location == "a"


def test_it_is_said_when_it_could_not_be_taken_either(rig: Rig) -> None:
    rig.open_circuit("off")
    reply = rig.admit("r.1", "a 1 off -", u=(0.5,))
    assert (reply.location, reply.reserve) == ("a", 0)


def test_alone_it_is_asked_for_by_its_order_and_nothing_else_is_taken(rig: Rig) -> None:
    assert rig.admit("r.1", "a 1 off -", order="reserve", tried="a").location == "off"
    rig.open_circuit("off")
    reply = rig.admit("r.2", "a 1 off -", order="reserve", tried="a")
    assert (reply.status, reply.location) == ("refused", "")


def test_after_a_wait_the_budget_of_failover_is_not_asked(rig: Rig) -> None:
    rig.policy = structs.replace(rig.policy, retry_percent=20, retry_floor=3)
    spent = [rig.admit(f"r.{n}", "a 1 b 1", order="declared", tried="a") for n in range(9)]
    assert spent[-1].status == "refused"
    assert rig.admit("r.99", "a 1 b 1 off -", order="reserve", tried="a").location == "off"


def test_in_line_a_claim_stands_and_its_prompt_is_no_load(rig: Rig) -> None:
    rig.admit("r.1", "a 1", u=(0.5,), prompt=prompt(300_000, caller=CALLER))
    loaded = rig.fields()
    assert {"a:prefill_tokens", "a:elephants", f"a:own:{CALLER[:8]}"} <= loaded.keys()

    assert rig.run("queue", claim="r.1", queued=1) == ["done"]
    assert rig.run("queue", claim="r.1", queued=1) == ["again"]
    assert {name for name in rig.fields() if name.startswith("a:")} == {"a:inflight"}

    assert rig.run("queue", claim="r.1", queued=0) == ["done"]
    assert rig.fields() == loaded


@pytest.mark.parametrize("end", ["settle", "first_token", "reap"])
def test_a_claim_that_ends_in_line_gives_back_what_it_held_and_no_more(rig: Rig, end: str) -> None:
    other = prompt(1000, caller=CALLER)
    rig.admit("r.1", "a 1", u=(0.5,), prompt=prompt(300_000, caller=CALLER))
    rig.run("queue", claim="r.1", queued=1)
    if end == "settle":
        rig.settle("r.1", "neutral")
    elif end == "first_token":
        rig.first_token("r.1")
    else:
        rig.later(60_000)
        rig.reap()
    rig.admit("r.2", "a 1", u=(0.5,), prompt=other)
    assert rig.fields()["a:prefill_tokens"] == "1000"
    assert "a:elephants" not in rig.fields()
    if end != "first_token":
        assert rig.run("queue", claim="r.1", queued=0) == ["gone"]
    else:
        assert rig.run("queue", claim="r.1", queued=0) == ["again"]
