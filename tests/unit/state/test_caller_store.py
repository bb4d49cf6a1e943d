"""The callers' side of the store: its steps on a real Redis and on the embedded store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.core.limits import Left, Limit, Limits, Room, Scope
from gateway.state.caller_store import CallerStore, Need, packed, scope_name
from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL, connect
from gateway.state.scripts import folder, load_all
from tests.fakes.caller_store import GRANTED, refused

SCRIPTS = load_all(folder())
TAG = "team:ac me{}"
WINDOW_MS, LEASE_MS = 60_000, 15_000
KEY = Scope(
    kind="key",
    id="alice",
    limits=Limits(rpm=Limit(9), tpm=Limit(100), max_parallel_requests=Limit(2)),
)
TEAM = Scope(
    kind="team",
    id="ac me{}",
    limits=Limits(
        rpm=Limit(5, is_shadow=True),
        tpm=Limit(500, is_fixed=True, is_shadow=True),
        max_budget=Limit(1_000),
        budget_duration_ms=3_600_000,
    ),
)
SCOPES = (KEY, TEAM)
NEED = Need(tokens=40, nanousd=600)


@pytest.fixture(params=["redis", "embedded"])
async def store(request: pytest.FixtureRequest, keys: Keys) -> AsyncIterator[CallerStore]:
    redis = request.param == "redis"
    url = request.getfixturevalue("redis_server").url if redis else EMBEDDED_URL
    runner = connect(url, SCRIPTS, socket_timeout_s=5.0)
    yield CallerStore(runner, keys)
    await runner.close()


def test_scopes_are_packed_as_the_scripts_read_them() -> None:
    assert packed(SCOPES) == "key:alice 9 100 2 - 0 team:ac%20me%7B%7D 5s 500fs - 1000 3600000"
    assert packed(()) == ""


def test_a_model_scope_keeps_the_parts_of_its_name_apart() -> None:
    one = Scope(kind="model", id="a/b:c", limits=Limits())
    other = Scope(kind="model", id="a:b/c", limits=Limits())
    assert scope_name(one) != scope_name(other)


async def test_a_request_is_reserved_renewed_and_settled(store: CallerStore) -> None:
    how = {"window_ms": WINDOW_MS, "lease_ms": LEASE_MS}
    reply = await store.reserve(TAG, SCOPES, NEED, reservation="r.1", **how)
    assert reply.is_reserved
    assert not reply.fits_again
    assert reply.room.requests == Left(9, 8, reply.rpm_reset_ms)
    assert reply.room.tokens == Left(100, 60, reply.tpm_reset_ms)
    second = await store.reserve(TAG, SCOPES, NEED, reservation="r.2", **how)
    assert (second.status, second.limit) == ("refused", "team:ac%20me%7B%7D budget")
    assert await store.renew(TAG, reservations=["r.1", "r.2"], lease_ms=LEASE_MS) == ["r.2"]
    settle = {"reservation": "r.1", "held": reply.held, "is_used": True, "nanousd": 70}
    assert await store.settle(TAG, tokens=20, **settle) == "done"
    assert await store.settle(TAG, tokens=20, **settle) == "gone"
    under_way, uses = await store.uses(TAG, SCOPES, window_ms=WINDOW_MS)
    assert under_way == 0
    assert {(use.scope, use.limit): use.taken for use in uses} == {
        ("key:alice", "rpm"): 1,
        ("key:alice", "tpm"): 20,
        ("key:alice", "max_parallel_requests"): 0,
        ("team:ac%20me%7B%7D", "rpm"): 1,
        ("team:ac%20me%7B%7D", "tpm"): 20,
        ("team:ac%20me%7B%7D", "max_budget"): 70,
    }


async def test_what_is_lost_is_put_back_and_what_has_expired_is_reaped(store: CallerStore) -> None:
    reply = await store.reserve(
        TAG, SCOPES, NEED, reservation="r.1", window_ms=WINDOW_MS, lease_ms=0
    )
    assert await store.reap(TAG) == 1
    put_back = {"reservation": "r.1", "lease_ms": LEASE_MS}
    was_lost, held = await store.reassert(TAG, held=reply.held, **put_back)
    assert (was_lost, held.replace(" is_spent=1", "")) == (True, reply.held)
    assert await store.reassert(TAG, held=held, **put_back) == (False, held)


@pytest.mark.parametrize(
    ("reply", "lasts"),
    [
        (GRANTED, False),
        (refused("key:a rpm"), True),
        (refused("key:a tpm"), True),
        (refused("key:a parallel"), False),
        (refused("key:a budget"), False),
        (refused("key:a budget", status="spent"), True),
    ],
    ids=["granted", "rpm", "tpm", "parallel", "held", "spent"],
)
def test_a_refusal_lasts_that_no_end_of_a_request_can_lift(reply: object, lasts: bool) -> None:
    assert reply.lasts == lasts  # type: ignore[attr-defined]


def test_there_is_room_of_no_kind_that_is_not_limited() -> None:
    assert GRANTED.room == Room()


def test_a_need_is_within_another_when_none_of_it_is_more() -> None:
    assert Need(tokens=1, nanousd=1).is_within(Need(tokens=1, nanousd=1))
    assert not Need(tokens=2, nanousd=1).is_within(Need(tokens=1, nanousd=9))
    assert not Need(tokens=1, nanousd=2).is_within(Need(tokens=9, nanousd=1))
