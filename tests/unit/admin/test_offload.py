"""Offload policies at run time: what may be set, what holds, and why one has no effect."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.gates import GateReader, GateStatus
from gateway.admin.offload import DaysQuery, NotOffloadable, OffloadRoutes
from gateway.admission.secret import Secret
from gateway.config.offload_schema import OffloadEntry
from gateway.config.result import Config
from gateway.config.strategies import ExpectedTtftParams, FixedParams
from gateway.core.offload import Offload
from gateway.core.route import UpstreamKey
from gateway.errors import InvalidRequest
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.offloads import Offloaded, OffloadLog
from gateway.state.pool_store import PoolStore
from tests.fakes.builders import config, model, route
from tests.unit.admin.conftest import Embedded

CONFIGURED = Offload(location="b", wait_s=3.0)
MODEL = model(route("a"), route("b"), offload=CONFIGURED)


def entry(route_id: str = "b", wait_seconds: float = 5, **values: Any) -> OffloadEntry:
    return OffloadEntry(route_id=route_id, wait_seconds=wait_seconds, **values)


def routes(store: Embedded, of: Config | None = None) -> OffloadRoutes:
    return OffloadRoutes(of or config(MODEL), store, OffloadLog(store.runner, store.keys))


async def test_the_configured_policy_holds_until_another_is_set_and_again_after_that(
    store: Embedded,
) -> None:
    served = routes(store)
    found = (await served.of(MODEL)).offload
    assert found
    assert (found.route_id, found.wait_seconds, found.is_override) == ("b", 3.0, False)

    given = entry("m:a", engine_queue_limit=2, max_input_tokens=9)
    changed = await served.set(MODEL, given, by="ops")
    assert changed.offload
    assert changed.epoch > 0
    assert (changed.offload.route_id, changed.offload.endpoint_id) == ("a", "m:a")
    assert (changed.offload.engine_queue_limit, changed.offload.max_input_tokens) == (2, 9)
    assert (changed.offload.active, changed.offload.updated_by) == (True, "ops")
    # All replicas read the same.
    overrides = await store.overrides("m")
    assert overrides.offload
    assert overrides.offload.policy == Offload(
        location="a", wait_s=5.0, engine_queue_limit=2, max_input_tokens=9
    )

    dropped = await served.drop("m")
    assert dropped.offload
    assert dropped.offload.route_id == "b"
    assert dropped.epoch > changed.epoch
    assert (await served.drop("m")).epoch == dropped.epoch
    assert (await served.drop("gone")).offload is None


async def test_all_lists_models_that_have_a_policy(store: Embedded) -> None:
    of = config(MODEL, model(route("c", model_id="n"), id="n"))
    found = await routes(store, of).all()
    assert [one.model_id for one in found.offload_routes] == ["m"]
    assert (found.queue_enabled, found.max_wait_seconds) == (True, 86_400)


async def test_a_route_that_the_model_does_not_have_is_refused_by_name(store: Embedded) -> None:
    with pytest.raises(InvalidRequest, match="no route 'x'") as refused:
        await routes(store).set(MODEL, entry("x"), by="ops")
    assert (refused.value.status, refused.value.param) == (400, "route_id")
    assert await store.everything() == {}


@pytest.mark.parametrize(
    "of",
    [
        model(route("a")),
        model(route("a"), route("b"), router="expected_ttft", router_params=ExpectedTtftParams()),
        model(route("a"), route("b"), router_params=FixedParams(hybrid_composition=True)),
    ],
    ids=["one route", "another strategy", "hybrid composition"],
)
async def test_a_model_that_can_have_none_is_refused(store: Embedded, of: Any) -> None:
    with pytest.raises(NotOffloadable) as refused:
        await routes(store, config(of)).set(of, entry("a"), by="ops")
    assert refused.value.status == 422


async def test_a_policy_without_effect_says_why(store: Embedded) -> None:
    served = routes(store)
    places = [("a", "a", 1.0), ("b", "b", 1.0)]

    async def reason() -> str | None:
        found = (await served.of(MODEL)).offload
        assert found
        assert found.active is (found.inactive_reason is None)
        return found.inactive_reason

    assert await reason() is None
    await store.override_weight("m", location="b", weight=0.0, routes=places)
    assert await reason() == "weight_override"
    await store.override_weight("m", location="b", weight=None, routes=places)
    await store.override_provider("m", label="b", disabled=True, routes=places, force=False)
    assert await reason() == "provider_disabled"
    await store.redis("HSET", store.keys.model("m")["overrides"], "offload", "location=x wait_s=1")
    assert await reason() == "unknown_route"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "location=a",
        "wait_s=1",
        "location=a wait_s=0",
        "location=a wait_s=inf",
        "location=a wait_s=nan",
        "location=a wait_s=x",
        "location=a wait_s=1 engine_queue_limit=0",
        "location=a wait_s=1 max_input_tokens=1.5",
        "location=a wait_s=1 at_ms=-1",
        "location=a wait_s=1 at_ms=9999999999999999",
    ],
)
async def test_what_somebody_has_edited_into_nonsense_is_no_policy(
    store: Embedded, text: str
) -> None:
    await store.redis("HSET", store.keys.model("m")["overrides"], "offload", text)
    assert (await store.overrides("m")).offload is None


async def test_the_last_offloaded_requests_are_told_and_old_ones_forgotten(
    store: Embedded,
) -> None:
    log = OffloadLog(store.runner, store.keys)
    for number in range(3):
        await log.note(
            Offloaded(
                request_id=f"req {number}",
                model="m/x y",
                reason="queue_wait",
                offload_endpoint="m:b",
                endpoint="m:a",
                attempts=["m:a=queue_wait_expired", "m:b=http_500", "m:a"],
                total_ms=1.5,
            )
        )
    found = await routes(store).recent(DaysQuery())
    assert [one.request_id for one in found.offloads] == ["req 2", "req 1", "req 0"]
    assert found.offloads[0].model == "m/x y"
    assert found.offloads[0].attempts == ["m:a=queue_wait_expired", "m:b=http_500", "m:a"]
    assert found.offloads[0].at_ms > 0
    for days in (0, -1, 8):
        with pytest.raises(InvalidRequest):
            await routes(store).recent(DaysQuery(days=days))


async def test_every_gate_is_shown_once_with_what_is_in_it(store: Embedded) -> None:
    held = Offload(location="b", wait_s=3.0, engine_queue_limit=2)
    keyed = {"provider": "acme", "api_keys": (UpstreamKey("k1"), UpstreamKey("k2"))}
    of = config(
        model(route("a", **keyed), route("b", base_url="http://localhost:8000"), offload=held),
        model(route("a", model_id="n", **keyed), id="n"),
    )
    gates = GateStore(store.runner, store.keys, Channels(store.keys))
    reader = GateReader(of, gates, PoolStore(store.runner, store.keys), Secret("s"))
    overrides = {id: await store.overrides(id) for id in ("m", "n")}

    found = await reader.all(overrides)

    assert [(one.provider, one.engine, one.limit) for one in found] == [
        ("acme", "", 8),
        ("acme", "", 8),
        ("", "localhost:8000", 2),
    ]
    assert len({one.key_fingerprint for one in found}) == 3
    assert found[2] == GateStatus(engine="localhost:8000", limit=2, in_flight=0, waiting=0)
    told = await reader.concurrency()
    assert told.config.initial_limit == 8
    assert [one.key_fingerprint for one in told.buckets] == [
        one.key_fingerprint for one in found[:2]
    ]
