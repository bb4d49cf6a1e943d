"""A server out of memory: what gives places back must run, what takes them must not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.exceptions import ResponseError

from gateway.state.keys import Keys
from gateway.state.link import code_of
from tests.lua.gate_rig import CONFIRM_MS, GateRig
from tests.lua.rig import LEASE_MS
from tests.redis_servers import RedisServer, private, script_store


@pytest.fixture(scope="module", params=["redis_binary", "old_redis_binary"])
def full(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with private(request.getfixturevalue(request.param)) as server:
        yield server


@pytest.fixture
def gate(full: RedisServer, keys: Keys) -> Iterator[GateRig]:
    """Two hold a place, of which one is dead; three wait. Then the memory is at its end."""
    with script_store(full) as store:
        gate = GateRig(store, keys)
        gate.hear("b")
        gate.enter("dead.1", lease_ms=1)
        gate.enter("a.1")
        gate.line_up("a.2", "b.1", "b.2")
        store.client.config_set("maxmemory", 1)
        yield gate
        store.client.config_set("maxmemory", 0)
        gate.close()


def test_gives_a_place_back_and_hands_it_on(gate: GateRig) -> None:
    reply = gate.leave("a.1", 429)

    assert (reply.status, reply.granted, reply.new_limit) == ("done", "", 1)
    assert gate.leave("dead.1").granted == ""
    assert (gate.holders(), gate.aside()) == (["b.1"], ["a.2"])
    assert gate.heard("b") == ["b.1"]


def test_confirms_what_was_granted(gate: GateRig) -> None:
    gate.leave("a.1")

    assert gate.confirm("a.2").status == "held"


def test_gives_up_waiting(gate: GateRig) -> None:
    assert gate.leave("a.2").status == "done"
    assert gate.line() == ["b.1", "b.2"]


def test_polls_and_takes_back_the_places_of_the_dead(gate: GateRig) -> None:
    gate.later(1)

    assert gate.poll("a", waiting="a.2", held="a.1").granted == "a.2"
    assert gate.held_until("a.1") == gate.now_ms + LEASE_MS


def test_goes_past_who_does_not_confirm(gate: GateRig) -> None:
    gate.leave("a.1")
    gate.leave("dead.1")
    gate.later(CONFIRM_MS)
    gate.poll("b", waiting="b.1 b.2")

    assert gate.holders() == ["b.1", "b.2"]


def test_tells(gate: GateRig) -> None:
    assert (gate.gate().in_flight, gate.gate().waiting) == (2, 3)


def test_takes_no_place_and_no_number(gate: GateRig) -> None:
    for wait in ("line", "over"):
        before = gate.state()
        with pytest.raises(ResponseError) as refused:
            gate.enter("c.1", wait=wait)
        assert code_of(refused.value) == "OOM"
        assert gate.state() == before
