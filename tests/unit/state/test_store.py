"""The store: a request's steps on a real Redis and on the embedded store give the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec import structs

from gateway.core.outcome import Outcome
from gateway.core.overrides import Overrides
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.state.decision import Decision
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.redis import EMBEDDED_URL, connect
from gateway.state.replies import AdmitReply, read_scores
from gateway.state.scripts import folder, load_all
from gateway.state.store import Store

SCRIPTS = load_all(folder())
LEASE_MS = 15_000
CALLER = "0123456789abcdef"
SAID = Prompt(caller=CALLER, tokens=60_000, fingerprint="f1", anchor="9:a1")
ODD = "gpu box {1}=a:own:ff"
ROUTES = (("a", "one", 1.0), (ODD, "two", 1.0))


@pytest.fixture(params=["redis", "embedded"])
async def store(request: pytest.FixtureRequest, keys: Keys) -> AsyncIterator[Store]:
    redis = request.param == "redis"
    url = request.getfixturevalue("redis_server").url if redis else EMBEDDED_URL
    runner = connect(url, SCRIPTS, socket_timeout_s=5.0)
    yield Store(runner, keys)
    await runner.close()


def decision(
    *locations: str,
    order: str = "declared",
    prompt: Prompt = NO_PROMPT,
    draws: Sequence[float] = (),
    weight: float = 1.0,
    epoch: int = 0,
) -> Decision:
    return Decision(
        policy=Policy(),
        epoch=epoch,
        candidates=[(at, weight) for at in locations],
        tried=[],
        order=order,
        draws=draws,
        prompt=prompt,
    )


async def admit(store: Store, claim: str, asked: Decision) -> AdmitReply:
    return await store.admit("x", asked, claim=claim, lease_ms=LEASE_MS)


async def settle(
    store: Store, claim: str, outcome: Outcome, *, at: str = "a", prompt: Prompt = NO_PROMPT
) -> tuple[str, str]:
    reply = await store.settle(
        "x",
        claim=claim,
        location=at,
        outcome=outcome,
        status=503,
        live_replicas=2,
        unpin=outcome is Outcome.FAILURE,
        policy=Policy(),
        prompt=prompt,
    )
    return reply.status, reply.circuit


async def first_token(store: Store, claim: str, prompt: Prompt = NO_PROMPT) -> str:
    return (await store.first_token("x", claim=claim, policy=Policy(), prompt=prompt)).status


async def test_attempt_that_succeeds(store: Store) -> None:
    assert (await admit(store, "r.1", decision("a", "b"))).location == "a"
    both = {"claims": ["r.1", "r.2"], "firsts": ["r.1"], "lease_ms": LEASE_MS}
    assert await store.renew("x", **both) == (["r.2"], ["r.1"])
    assert await first_token(store, "r.1") == "done"
    assert await store.renew("x", **both) == (["r.2"], [])
    assert await settle(store, "r.1", Outcome.SUCCESS) == ("done", "")
    assert await settle(store, "r.1", Outcome.SUCCESS) == ("gone", "")


async def test_attempts_that_fail_until_the_circuit_opens(store: Store) -> None:
    for number, turned in enumerate(["", "", "opened"]):
        await admit(store, f"r.{number}", decision("a"))
        assert await settle(store, f"r.{number}", Outcome.FAILURE) == ("done", turned)

    assert (await admit(store, "r.9", decision("a"))).passed_over() == {"a": "circuit_open"}
    assert (await store.rows("x"))[1].rows["a"]["circuit"] == "open"
    assert await store.reset_circuit("x", location="a") == "open"
    assert await store.reset_circuit("x", location="a") == "closed"
    assert (await admit(store, "r.9", decision("a"))).is_admitted


async def test_caller_who_returns_is_kept_where_the_prompt_is_cached(store: Store) -> None:
    asked = decision("a", "b", order="draw", draws=[0.0] * 4, prompt=SAID)
    first = await admit(store, "r.1", asked)
    assert (first.location, first.pin, first.tokens) == ("a", "made", 60_000)
    assert await first_token(store, "r.1", SAID) == "done"

    again = decision("a", "b", order="draw", draws=[0.9] * 4, prompt=SAID)
    told = await store.explain("x", again, replica="r")
    second = await admit(store, "r.2", again)

    assert (second.location, second.pin, second.tokens) == ("a", "kept", 0)
    assert (second.cached_tokens, second.anchor) == (60_000, "9:a1")
    assert (told.status, told.location, told.pin, told.tokens) == ("admitted", "a", "kept", 0)
    pin = await store.pin("x", caller=CALLER)
    assert pin.pin.startswith("location=a ")
    assert 0 < pin.left_ms <= 300_000
    assert (await store.drop_pin("x", caller=CALLER)).pin == pin.pin
    assert (await store.pin("x", caller=CALLER)).pin == ""


async def test_prompt_goes_where_it_is_cached_and_its_rate_is_learned(store: Store) -> None:
    asked = decision("a", ODD, order="expected_ttft", draws=[0.9], prompt=SAID)
    asked = structs.replace(asked, prefill_rate=1_000)
    assert (await admit(store, "r.1", asked)).location == ODD
    await store.first_token("x", claim="r.1", policy=Policy(), prompt=SAID, ttft_ms=2_000)

    again = structs.replace(asked, draws=[0.0])
    told = await store.explain("x", again, replica="r")
    second = await admit(store, "r.2", again)

    assert (second.location, second.tokens, second.pin) == (ODD, 15_000, "")
    assert (told.location, told.tokens) == (ODD, 15_000)
    assert read_scores(told.scores) == {"a": 2_000, ODD: 500}
    assert (await store.rows("x"))[1].rows[ODD]["prefill_rate"] == "30000.0"


async def test_failure_drops_the_pin(store: Store) -> None:
    await admit(store, "r.1", decision("a", order="draw", draws=[0.5], prompt=SAID))
    await settle(store, "r.1", Outcome.FAILURE, prompt=SAID)

    assert (await store.pin("x", caller=CALLER)).pin == ""


async def test_draw_with_too_few_numbers_is_short(store: Store) -> None:
    assert (await admit(store, "r.1", decision("a", order="draw"))).is_short


async def test_overrides_are_read_as_they_were_set(store: Store) -> None:
    assert await store.overrides("x") == Overrides()

    first = await store.override_weight("x", location=ODD, weight=0.1 + 0.2, routes=ROUTES)
    second = await store.override_provider(
        "x", label="one", disabled=True, routes=ROUTES, force=False
    )

    assert (first.status, second.status) == ("done", "done")
    assert await store.overrides("x") == Overrides(
        epoch=int(second.epoch), weights={ODD: 0.1 + 0.2}, disabled=frozenset({"one"})
    )
    assert int(second.epoch) > int(first.epoch) > 0


async def test_overrides_are_taken_back(store: Store) -> None:
    await store.override_weight("x", location="a", weight=0.0, routes=ROUTES)
    await store.override_weight("x", location="a", weight=None, routes=ROUTES)
    for disabled in (True, False):
        await store.override_provider(
            "x", label="one", disabled=disabled, routes=ROUTES, force=False
        )

    found = await store.overrides("x")
    assert (found.weights, found.disabled) == ({}, frozenset())


async def test_last_two_routes_zeroed_at_once_leave_one(store: Store) -> None:
    replies = await asyncio.gather(
        *(store.override_weight("x", location=at, weight=0.0, routes=ROUTES) for at, _, _ in ROUTES)
    )

    assert sorted(reply.status for reply in replies) == ["done", "none_left"]
    assert len((await store.overrides("x")).weights) == 1


async def test_last_routes_are_disabled_by_force(store: Store) -> None:
    every = [(at, "one", weight) for at, _, weight in ROUTES]
    statuses = [
        (
            await store.override_provider(
                "x", label="one", disabled=True, routes=every, force=force
            )
        ).status
        for force in (False, True)
    ]

    assert statuses == ["none_left", "done"]


async def test_decision_by_old_overrides_is_stale(store: Store) -> None:
    reply = await store.override_weight("x", location="a", weight=0.5, routes=ROUTES)

    assert (await admit(store, "r.1", decision("a"))).is_stale
    assert (await store.explain("x", decision("a"), replica="r")).status == "stale"
    assert (await admit(store, "r.1", decision("a", epoch=int(reply.epoch)))).is_admitted


async def test_lost_claim_is_put_back_once_with_its_prefill(store: Store) -> None:
    async def reassert() -> bool:
        return await store.reassert(
            "x",
            claim="r.1",
            location="a",
            lease_ms=LEASE_MS,
            first=False,
            tokens=7,
            is_elephant=True,
            caller=CALLER,
        )

    assert [await reassert(), await reassert()] == [True, False]

    claims, standing = await store.rows("x")
    rows = standing.rows
    assert claims == 1
    assert rows["a"] == {
        "inflight": "1",
        "prefill_tokens": "7",
        "elephants": "1",
        "own:01234567": "7",
    }
    assert rows.keys() == {"a", ""}
    assert rows[""].keys() == {"at_ms"}
    assert await store.reap("x") == 0


async def test_replicas_count_each_other(store: Store) -> None:
    async def beat(replica: str, about: str) -> int:
        reply = await store.beat_replica(replica, about=about, ttl_ms=6_000)
        return reply.live_replicas

    assert [await beat("r1", "host=h"), await beat("r2", "host=h"), await beat("r1", "")] == [
        1,
        2,
        1,
    ]
    known = await store.replicas()
    assert known.fields[0] == "r2"
    assert known.now_ms > 0


async def test_salt_that_came_first_stands(store: Store) -> None:
    salts = [
        (await store.beat_replica(name, about="host=h", ttl_ms=6_000, salt=name)).salt
        for name in ("r1", "r2")
    ]

    assert salts == ["r1", "r1"]


async def test_location_of_any_spelling_comes_back_as_it_was(store: Store) -> None:
    reply = await admit(store, "r.1", decision(ODD, prompt=SAID))

    assert reply.location == ODD
    assert (await store.rows("x"))[1].rows[ODD]["inflight"] == "1"
    assert (await store.rows("x"))[1].rows[ODD]["own:01234567"] == "60000"
    assert (await store.explain("x", decision(ODD), replica="r")).location == ODD
    assert await settle(store, "r.1", Outcome.NEUTRAL, at=ODD) == ("done", "")


@pytest.mark.parametrize("weight", [1e-300, 1e300, 0.1 + 0.2])
async def test_weights_and_draws_arrive_exactly(store: Store, weight: float) -> None:
    asked = decision("a", "b", order="draw", weight=weight, draws=[0.5, 0.0])

    reply = await admit(store, "r.1", asked)

    assert reply.location == "a", "half of both is the border, which belongs to the first"
