"""The store: a request's steps on a real Redis and on the embedded store give the same answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.core.outcome import Outcome
from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL, connect
from gateway.state.scripts import folder, load_all
from gateway.state.store import Policy, Store

SCRIPTS = load_all(folder())
LEASE_MS = 15_000


@pytest.fixture(params=["redis", "embedded"])
async def store(request: pytest.FixtureRequest, keys: Keys) -> AsyncIterator[Store]:
    redis = request.param == "redis"
    url = request.getfixturevalue("redis_server").url if redis else EMBEDDED_URL
    runner = connect(url, SCRIPTS, socket_timeout_s=5.0)
    yield Store(runner, keys, Policy())
    await runner.close()


async def admit(store: Store, claim: str, *locations: str, order: str = "declared") -> str:
    reply = await store.admit(
        "x",
        claim=claim,
        candidates=[(at, 1.0) for at in locations],
        tried=[],
        order=order,
        draws=[0.5] * len(locations),
        lease_ms=LEASE_MS,
    )
    return reply.location or reply.refused()[locations[0]]


async def settle(store: Store, claim: str, outcome: Outcome) -> tuple[str, str]:
    reply = await store.settle(
        "x", claim=claim, location="a", outcome=outcome, status=503, live_replicas=2
    )
    return reply.status, reply.circuit


async def test_attempt_that_succeeds(store: Store) -> None:
    assert await admit(store, "r.1", "a", "b") == "a"
    assert (await store.first_token("x", claim="r.1")).status == "done"
    assert await store.renew("x", claims=["r.1", "r.2"], lease_ms=LEASE_MS) == ["r.2"]
    assert await settle(store, "r.1", Outcome.SUCCESS) == ("done", "")
    assert await settle(store, "r.1", Outcome.SUCCESS) == ("gone", "")


async def test_attempts_that_fail_until_the_circuit_opens(store: Store) -> None:
    for number, turned in enumerate(["", "", "opened"]):
        await admit(store, f"r.{number}", "a")
        assert await settle(store, f"r.{number}", Outcome.FAILURE) == ("done", turned)

    assert await admit(store, "r.9", "a") == "circuit_open"
    assert (await store.rows("x"))["a"]["circuit"] == "open"


async def test_lost_claim_is_put_back_once(store: Store) -> None:
    again = {"claim": "r.1", "location": "a", "lease_ms": LEASE_MS, "first": True}

    assert await store.reassert("x", **again) is True  # type: ignore[arg-type]
    assert await store.reassert("x", **again) is False  # type: ignore[arg-type]
    assert (await store.rows("x"))["a"]["inflight"] == "1"
    assert await store.reap("x") == 0


async def test_replicas_count_each_other(store: Store) -> None:
    assert await store.beat_replica("r1", about="host=h", ttl_ms=6_000) == 1
    assert await store.beat_replica("r2", about="host=h", ttl_ms=6_000) == 2
    assert await store.beat_replica("r1", about="", ttl_ms=6_000) == 1


async def test_location_of_any_spelling_comes_back_as_it_was(store: Store) -> None:
    assert await admit(store, "r.1", "gpu box {1}=a") == "gpu box {1}=a"
    assert (await store.rows("x"))["gpu box {1}=a"]["inflight"] == "1"


@pytest.mark.parametrize("weight", [1e-300, 1e300, 0.1 + 0.2])
async def test_weights_and_draws_arrive_exactly(store: Store, weight: float) -> None:
    reply = await store.admit(
        "x",
        claim="r.1",
        candidates=[("a", weight), ("b", weight)],
        tried=[],
        order="draw",
        draws=[0.5, 0.0],
        lease_ms=LEASE_MS,
    )

    assert reply.location == "a", "half of both is the border, which belongs to the first"
