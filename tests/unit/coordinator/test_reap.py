"""What nobody serves any more is found and forgotten, and what is served stays."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.current import Known
from coordinator.reap import PAGE, Reaper
from gateway.config.result import Config
from gateway.config.upstream_schema import UpstreamConcurrency
from gateway.core.gate import Gate
from gateway.core.prompt import Prompt
from gateway.core.supply import Supply
from gateway.state.caller_store import CallerStore
from gateway.state.coordinator_store import Fenced
from gateway.state.decision import Decision
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.policy import Policy
from gateway.state.supply_store import SupplyStore
from tests.fakes.builders import config, model, route
from tests.unit.coordinator.conftest import EPOCH, Rig, current

CALLER = "0123456789abcdef"


def reaper_of(rig: Rig, known: Known) -> Reaper:
    return Reaper(
        rig.runner,
        rig.keys,
        rig.coordinator,
        CallerStore(rig.runner, rig.keys),
        GateStore(rig.runner, rig.keys, Channels(rig.keys)),
        supplies=SupplyStore(rig.runner, rig.keys),
        known=known,
        tally=rig.tally,
        reaper="c1",
    )


async def clean(rig: Rig, of: Config | None = None, **how: Any) -> Reaper:
    """One sweep and one round of tidying."""
    reaper = reaper_of(rig, await rig.known(of or config(), **how))
    await reaper.sweep(EPOCH)
    await reaper.tidy(EPOCH)
    return reaper


def expire(rig: Rig, key: str) -> None:
    """Have the lease of everything in a sorted set run out."""
    rig.client.zadd(key, dict.fromkeys(rig.client.zrange(key, 0, -1), 5), xx=True)


async def claim(rig: Rig, model_id: str, claim_id: str) -> None:
    decision = Decision(
        policy=Policy(),
        epoch=0,
        candidates=(("a", 1.0),),
        limited=(),
        tried=(),
        order="declared",
        draws=(),
        prompt=Prompt(caller=CALLER, tokens=9),
    )
    reply = await rig.store.admit(model_id, decision, claim=claim_id, lease_ms=60_000)
    assert reply.is_admitted


def pin(rig: Rig, model_id: str, location: str, caller: str = CALLER) -> str:
    key = rig.keys.caller(model_id, caller)["pin"]
    rig.client.set(key, f"location={location} created_ms=1 until_ms=2", ex=60)
    return key


def of_model(rig: Rig, model_id: str) -> set[str]:
    return {key for key in rig.all_keys() if key.startswith(f"{{m:{model_id}}}")}


async def test_model_that_nobody_serves_is_forgotten_with_its_expired_claims(rig: Rig) -> None:
    for number in range(300):
        await claim(rig, "old", f"dead.{number}")
    expire(rig, rig.keys.model("old")["claims"])
    rig.put("old", b__circuit="open")

    await clean(rig)

    assert of_model(rig, "old") == set()
    assert rig.tally.take()["ended"] == 300


async def test_model_that_nobody_serves_stays_while_something_is_claimed(rig: Rig) -> None:
    await claim(rig, "old", "r1.1")
    before = rig.row("old")

    await clean(rig)

    assert rig.row("old") == before
    assert "{m:old}:claims" in rig.all_keys()


async def test_what_operators_have_set_outlives_the_model(rig: Rig) -> None:
    await rig.store.override_weight("old", location="a", weight=0.5, routes=[("a", "a", 1.0)])

    await clean(rig)

    assert of_model(rig, "old") == {"{m:old}:epoch", "{m:old}:overrides"}


@pytest.mark.parametrize(
    "how",
    [{"digest": "other"}, {"replicas": 0}],
    ids=["replicas serve by other files", "there is no replica"],
)
async def test_nothing_is_forgotten_where_it_is_not_certain_but_expired_claims_end(
    rig: Rig, how: dict[str, Any]
) -> None:
    rig.put("old", b__circuit="open")
    rig.put("m", gone__failures=1)
    key = pin(rig, "m", "gone")
    await claim(rig, "old", "dead.1")
    expire(rig, rig.keys.model("old")["claims"])

    await clean(rig, **how)

    assert rig.row("old")["b:circuit"] == "open"
    assert "a:inflight" not in rig.row("old")
    assert rig.row("m") == {"gone:failures": "1"}
    assert rig.client.exists(key)


async def test_nothing_is_forgotten_where_a_variable_is_missing_here(rig: Rig) -> None:
    rig.put("m", gone__failures=1)
    known = await rig.known(config())
    known.replace(current(config(), is_complete=False))
    reaper = reaper_of(rig, known)

    await reaper.sweep(EPOCH)
    await reaper.tidy(EPOCH)

    assert rig.row("m") == {"gone:failures": "1"}


async def test_endpoint_that_is_gone_is_forgotten_and_the_others_stay(rig: Rig) -> None:
    rig.put("m", gone__failures=1, a__failures=2)

    await clean(rig, config(model(route("a"))))

    assert rig.row("m") == {"a:failures": "2"}


async def test_note_of_a_dead_replica_is_forgotten_and_that_of_a_live_one_stays(rig: Rig) -> None:
    rig.put("m", a__conn="dead:2:5 r1:1:5 c1:1:5")

    await clean(rig)

    assert rig.row("m") == {"a:conn": "r1:1:5 c1:1:5"}


async def test_pins_to_endpoints_that_are_gone_are_dropped_among_many(rig: Rig) -> None:
    stale = [pin(rig, "m", "gone", f"{n:016x}") for n in range(20)]
    kept = [pin(rig, "m", at, f"{n + 100:016x}") for n, at in enumerate(["a"] * PAGE)]
    kept.append(pin(rig, "m", "a@another-host", "f" * 16))
    strange = pin(rig, "old", "a")
    nonsense = rig.keys.caller("m", "e" * 16)["pin"]
    rig.client.set(nonsense, "junk", ex=60)

    await clean(rig, config(model(route("a"))))

    assert not rig.client.exists(*stale, strange)
    assert rig.client.exists(*kept, nonsense) == len(kept) + 1
    assert rig.tally.take()["unpinned"] == 21


async def test_reservations_of_the_dead_end_though_their_caller_does_not_come_again(
    rig: Rig,
) -> None:
    keys = rig.keys.limits("key:alice")
    rig.client.zadd(keys["reservations"], {"dead.1": 5})
    rig.client.hset(keys["reserved"], "dead.1", "lease_ms=1 at_ms=1 parallel=key:alice")
    rig.client.hset(keys["limits"], "key:alice:parallel", "1")

    await clean(rig)

    assert not rig.client.exists(keys["reservations"], keys["reserved"])
    assert not rig.client.hexists(keys["limits"], "key:alice:parallel")


async def test_places_and_waiters_of_the_dead_leave_a_gate_that_nobody_comes_to(rig: Rig) -> None:
    gates = GateStore(rig.runner, rig.keys, Channels(rig.keys))
    gate = Gate(tag="u:acme:0123456789ab", limit=2, most=8, interval=100)
    for number in range(22):
        await gates.enter(gate, ticket=f"dead.{number}", wait="line", lease_ms=60_000)
    assert (await gates.state(gate)).waiting == 20
    expire(rig, rig.keys.gate(gate.tag)["gate_holders"])

    reaper = await clean(rig)
    assert (await gates.state(gate)).in_flight == 0
    # Nobody was told of the places, and those whom nobody can tell are forgotten
    expire(rig, rig.keys.gate(gate.tag)["gate_aside"])
    await reaper.tidy(EPOCH)

    state = await gates.state(gate)
    assert (state.in_flight, state.waiting, state.aside) == (0, 0, 0)


LEARNED = Gate(tag="u:acme:0123456789ab", limit=2, most=64, interval=1)
ENGINE = Gate(tag="e:localhost:8000@host-b", limit=1)


async def test_places_of_the_dead_go_on_by_the_limit_that_is_configured_now(rig: Rig) -> None:
    gates = GateStore(rig.runner, rig.keys, Channels(rig.keys))
    client = rig.client.pubsub()
    client.subscribe(f"{rig.keys.grants()}live")
    assert client.get_message(timeout=5)
    # Given a limit of six that was learned, which may be but two by now, and four in line
    rig.client.hset(rig.keys.gate(LEARNED.tag)["gate"], "limit", "6")
    for number in range(10):
        await gates.enter(LEARNED, ticket=f"live.{number}", wait="line", lease_ms=60_000)
    assert (await gates.state(LEARNED)).waiting == 4
    expire(rig, rig.keys.gate(LEARNED.tag)["gate_holders"])

    await clean(rig, config(upstream_concurrency=UpstreamConcurrency(initial=1, max=2)))

    state = await gates.state(LEARNED)
    assert (state.in_flight, state.waiting) == (2, 2)
    client.close()


@pytest.mark.parametrize("gate", [LEARNED, ENGINE], ids=["account", "engine"])
async def test_gate_that_no_route_leads_to_is_forgotten_with_all_that_was_in_it(
    rig: Rig, gate: Gate
) -> None:
    gates = GateStore(rig.runner, rig.keys, Channels(rig.keys))
    for number in range(20):
        await gates.enter(gate, ticket=f"dead.{number}", wait="line", lease_ms=60_000)
    reaper = await clean(rig)
    assert rig.client.exists(*rig.keys.gate(gate.tag).values()), "while somebody may be there"

    expire(rig, rig.keys.gate(gate.tag)["gate_holders"])
    await reaper.tidy(EPOCH)
    expire(rig, rig.keys.gate(gate.tag)["gate_aside"])
    await reaper.tidy(EPOCH)

    assert not rig.client.exists(*rig.keys.gate(gate.tag).values())


@pytest.mark.parametrize("gate", [LEARNED, ENGINE], ids=["account", "engine"])
async def test_what_was_learned_at_a_gate_stays_while_a_route_leads_there(
    rig: Rig, gate: Gate
) -> None:
    gates = GateStore(rig.runner, rig.keys, Channels(rig.keys))
    await gates.enter(gate, ticket="r.1", wait="line", lease_ms=60_000)
    await gates.leave(gate, ticket="r.1", status=429)
    before = rig.client.hgetall(rig.keys.gate(gate.tag)["gate"])
    assert before
    to_account = route("a", provider=" acme ")
    to_engine = route("b", base_url="http://LOCALHOST:8000/v1")

    await clean(rig, config(model(to_account, to_engine)))

    assert rig.client.hgetall(rig.keys.gate(gate.tag)["gate"]) == before


async def test_gate_stays_where_it_is_not_certain_that_no_route_leads_there(rig: Rig) -> None:
    key = rig.keys.gate(LEARNED.tag)["gate"]
    rig.client.hset(key, "limit", "6")

    await clean(rig, digest="other")

    assert rig.client.hgetall(key) == {"limit": "6"}


async def test_places_that_the_dead_have_of_an_account_end_with_their_lease(rig: Rig) -> None:
    supplies = SupplyStore(rig.runner, rig.keys)
    plan = Supply(kind="places", pool="team/plan", limit=9)
    assert await supplies.take(plan, claim="r1.1", lease_ms=60_000) == "taken"
    rig.client.zadd(rig.keys.supply(plan.pool)["places"], {"dead.1": 5, "dead.2": 6})

    await clean(rig)

    assert rig.client.zrange(rig.keys.supply(plan.pool)["places"], 0, -1) == ["r1.1"]


async def test_models_that_are_served_are_looked_at_by_each_new_leader_at_once(rig: Rig) -> None:
    reaper = reaper_of(rig, await rig.known(config()))
    reaper.begin()
    await reaper.tidy(EPOCH)
    key = rig.keys.model("m")["endpoints"]
    assert rig.client.hget(key, "fence") == str(EPOCH)

    rig.client.hdel(key, "fence")
    await reaper.tidy(EPOCH)
    assert rig.client.hget(key, "fence") is None  # it has just been there
    reaper.begin()
    await reaper.tidy(EPOCH + 1)
    assert rig.client.hget(key, "fence") == str(EPOCH + 1)
    reaper.begin()
    with pytest.raises(Fenced):
        await reaper.tidy(EPOCH)
