"""Single pins and circuits, looked at and undone by hand."""

from __future__ import annotations

import pytest

from gateway.admin.circuits import reset_circuit
from gateway.admin.pins import Pin, Pins
from gateway.admin.targets import NoSuchTarget
from gateway.admission.secret import Secret
from gateway.core.caller import Caller
from gateway.errors import InvalidRequest, StateUnavailable
from gateway.routing.affinity import affinity_key
from tests.fakes.builders import model, route
from tests.unit.admin.conftest import Embedded

SECRET = Secret("of the tests")
M = model(route("a"), route("b"))


async def pin(store: Embedded, text: str, caller: str = "alice", session: str | None = None) -> int:
    """Write a pin; `{now}` in the text is the time of the store, which is returned."""
    assert SECRET.key
    now_ms = int((await store.redis("TIME"))[0]) * 1000
    digest = affinity_key(Caller(id=caller), session, SECRET.key) or ""
    written = text.format(now=now_ms, soon=now_ms + 200_000, past=now_ms - 1)
    await store.redis("SET", store.keys.caller("m", digest)["pin"], written)
    return now_ms


async def test_pin_is_shown_with_its_endpoint_and_age(store: Embedded) -> None:
    now_ms = await pin(store, "location=a%2Fb created_ms={now} until_ms={soon}", session="talk")
    found = await Pins(store, SECRET).of(M, "alice", "talk")
    assert (found.endpoint, found.location, found.created_ms) == ("m:a/b", "a/b", now_ms)
    assert found.expires_in_ms is not None
    assert 195_000 < found.expires_in_ms <= 200_000


@pytest.mark.parametrize(
    "text", ["junk", "", "location=a created_ms={now} until_ms={past}", "location=a"]
)
async def test_what_is_no_pin_or_has_expired_is_none(store: Embedded, text: str) -> None:
    await pin(store, text)
    assert await Pins(store, SECRET).of(M, "alice", None) == Pin(
        model="m", caller="alice", session=None
    )


async def test_dropped_pin_is_told_and_gone_and_others_stay(store: Embedded) -> None:
    for caller, session in (("alice", None), ("alice", "talk"), ("bob", None)):
        await pin(store, "location=a created_ms={now} until_ms={soon}", caller, session)
    pins = Pins(store, SECRET)
    dropped = await pins.drop(M, "alice", None)
    assert (dropped.endpoint, dropped.expires_in_ms) == ("m:a", None)
    assert (await pins.of(M, "alice", None)).endpoint is None
    assert (await pins.drop(M, "alice", None)).endpoint is None
    assert (await pins.of(M, "alice", "talk")).endpoint == "m:a"
    assert (await pins.of(M, "bob", None)).endpoint == "m:a"


async def test_callers_who_cannot_be_told_apart_have_no_pin(store: Embedded) -> None:
    with pytest.raises(InvalidRequest):
        await Pins(store, SECRET).of(M, "ip:unknown", None)


async def test_pins_cannot_be_found_before_the_salt_is_known(store: Embedded) -> None:
    with pytest.raises(StateUnavailable):
        await Pins(store, Secret(None)).of(M, "alice", None)


@pytest.mark.parametrize("word", ["a", "m:a"])
async def test_reset_circuit_is_closed_and_what_the_endpoint_holds_stays(
    store: Embedded, word: str
) -> None:
    await store.edit("m", a__circuit="open", a__opened_at_ms="5", a__failures="3", a__inflight="2")
    await store.edit("m", b__circuit="open")
    found = await reset_circuit(store, M, word)
    assert (found.endpoint, found.was) == ("m:a", "open")
    _, standing = await store.rows("m")
    assert standing.rows == {"a": {"inflight": "2"}, "b": {"circuit": "open"}}
    assert (await reset_circuit(store, M, word)).was == "closed"


async def test_circuit_of_an_unknown_endpoint_is_not_found(store: Embedded) -> None:
    with pytest.raises(NoSuchTarget, match=r"no endpoint 'x'\. Its endpoints: a, b\."):
        await reset_circuit(store, M, "x")
