"""Samples: who is asked when, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

import coordinator.sample
from coordinator.calibrate import Calibrator
from coordinator.current import Known
from coordinator.lease import Lease
from coordinator.sample import Sampler
from gateway.config.result import Config
from gateway.config.routewise_schema import RoutewiseParams
from gateway.dispatch.send import Dispatcher
from gateway.state.outcomes import Ended, read_ended, write_ended
from gateway.state.supply_store import SupplyStore
from tests.fakes.builders import config, model, route
from tests.unit.coordinator.conftest import EPOCH, Over, Rig, current, held, until

SSE = {"content-type": "text/event-stream"}
FRAME = (
    b'data: {"id":"x","object":"chat.completion.chunk","model":"theirs","choices":'
    b'[{"index":0,"delta":{"content":"p"},"finish_reason":null}]}\n\n'
)
SILENT = FRAME.replace(b'{"content":"p"}', b"{}").replace(b"null", b'"stop"')
DONE = b"data: [DONE]\n\n"


class Upstream(httpx.AsyncBaseTransport):
    """Answers each request by what a test says, and notes how many are open at a time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, httpx.Response] = {}
        self.open, self.most = 0, 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            self.asked.append(request.url.host.partition(".")[0])
            await self.may_answer.wait()
        finally:
            self.open -= 1
        usual = httpx.Response(200, content=FRAME + DONE, headers=SSE)
        answer = self.answers.get(self.asked[-1], usual)
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)


def sampled(*params: dict[str, Any]) -> Config:
    """Models that are sampled, each on two endpoints."""
    usual = {"routewise_probe_enabled": True, "routewise_probe_interval_sec": 3600}
    return config(
        *(
            model(
                *(route(at, model_id=f"m{n}") for at in ("a", "b")),
                id=f"m{n}",
                router="routewise",
                router_params=RoutewiseParams(**{**usual, **values}),
            )
            for n, values in enumerate(params)
        )
    )


@asynccontextmanager
async def sampling(
    rig: Rig, of: Config, upstream: Upstream, lease: Lease | None = None
) -> AsyncIterator[Known]:
    """Samples while the context is open."""
    known = await rig.known(of)
    calibrator = Calibrator(
        rig.coordinator, SupplyStore(rig.runner, rig.keys), known, rig.tally, reader="c1"
    )
    dispatcher = Dispatcher({"http1": upstream})
    sampler = Sampler(
        rig.store,
        rig.coordinator,
        calibrator,
        dispatcher,
        known=known,
        tally=rig.tally,
        lease=lease or held(rig),
    )
    tasks = [asyncio.create_task(one.run(EPOCH)) for one in (calibrator, sampler)]
    try:
        yield known
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def kept(rig: Rig, model_id: str = "m0") -> list[Ended]:
    """What is kept of probes."""
    entries = rig.client.xrange(rig.keys.model(model_id)["outcomes"])
    found = [read_ended(id, fields["end"]) for id, fields in entries]
    return [one for one in found if one and one.is_probe]


async def test_every_endpoint_is_asked_at_first_and_how_fast_it_was_is_kept(rig: Rig) -> None:
    upstream = Upstream()
    async with sampling(rig, sampled({}), upstream):
        await until(lambda: len(kept(rig)) == 2)

    assert sorted(upstream.asked) == ["a", "b"]
    assert all(one.is_ok and one.ttft_ms for one in kept(rig))
    assert {one.prompt_tokens + one.output_tokens for one in kept(rig)} == {0}
    profile = await rig.store.profile("m0")
    assert profile is None or profile.profile.output is None


async def test_none_is_asked_where_that_is_off(rig: Rig) -> None:
    upstream = Upstream()
    async with sampling(rig, sampled({"routewise_probe_enabled": False}, {}), upstream):
        await until(lambda: len(kept(rig, "m1")) == 2)

    assert kept(rig) == []


async def test_an_engine_that_starts_when_it_is_used_is_not_asked(rig: Rig) -> None:
    routes = route("a", starts_when_used=True), route("b")
    params = RoutewiseParams(routewise_probe_enabled=True)
    of = config(model(*routes, router="routewise", router_params=params))
    upstream = Upstream()
    async with sampling(rig, of, upstream):
        await until(lambda: kept(rig, "m"))

    assert upstream.asked == ["b"]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500, json={"error": {"message": "no"}}),
        httpx.Response(400, json={"error": {"message": "no"}}),
        httpx.Response(200, content=SILENT + DONE, headers=SSE),
    ],
    ids=["failure", "rejected", "no output"],
)
async def test_one_that_gives_no_output_counts_as_a_failure(
    rig: Rig, answer: httpx.Response
) -> None:
    upstream = Upstream()
    upstream.answers["a"] = answer
    async with sampling(rig, sampled({}), upstream):
        await until(lambda: len(kept(rig)) == 2)

    assert {one.location: one.is_ok for one in kept(rig)} == {"a": False, "b": True}


async def test_one_that_does_not_answer_counts_as_a_failure(rig: Rig) -> None:
    upstream = Upstream()
    upstream.may_answer.clear()
    async with sampling(rig, sampled({"routewise_probe_timeout_sec": 0.05}), upstream):
        await until(lambda: len(kept(rig)) == 2)

    assert not any(one.is_ok for one in kept(rig))


@pytest.mark.parametrize(("idle_only", "asked"), [(True, ["b"]), (False, ["a", "b"])])
async def test_one_with_traffic_is_asked_only_where_that_does_not_matter(
    rig: Rig, idle_only: bool, asked: list[str]
) -> None:
    upstream = Upstream()
    words = write_ended(Ended(location="a", is_ok=True, ttft_ms=9))
    rig.client.xadd(rig.keys.model("m0")["outcomes"], {"end": words})
    async with sampling(rig, sampled({"routewise_probe_idle_only": idle_only}), upstream):
        await until(lambda: len(kept(rig)) == len(asked))

    assert sorted(upstream.asked) == asked


@pytest.mark.parametrize(("most", "expected"), [((1, 4), 1), ((3, 2), 2)])
async def test_so_many_are_asked_at_a_time_as_the_model_with_the_least_allows(
    rig: Rig, most: tuple[int, int], expected: int
) -> None:
    upstream = Upstream()
    upstream.may_answer.clear()
    of = sampled(*({"routewise_probe_max_concurrency": number} for number in most))
    async with sampling(rig, of, upstream):
        await until(lambda: upstream.open == expected)
        await asyncio.sleep(0.1)
        upstream.may_answer.set()
        await until(lambda: len(kept(rig)) + len(kept(rig, "m1")) == 4)

    assert upstream.most == expected


async def test_they_are_asked_again_after_the_interval(rig: Rig) -> None:
    upstream = Upstream()
    async with sampling(rig, sampled({"routewise_probe_interval_sec": 0.5}), upstream):
        await until(lambda: len(kept(rig)) >= 4)

    assert {upstream.asked.count(at) >= 2 for at in ("a", "b")} == {True}


async def test_one_that_waits_for_a_place_is_not_asked_for_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an endpoint that keeps the only place for many intervals
    monkeypatch.setattr(coordinator.sample, "LOOK_S", 0.01)
    upstream = Upstream()
    upstream.may_answer.clear()
    async with sampling(rig, sampled({"routewise_probe_interval_sec": 0.01}), upstream):
        await until(lambda: upstream.open == 1)
        await asyncio.sleep(0.2)
        # When no more samples are wanted
        await rig.store.override_setting("m0", "routewise_probe_enabled", 0)
        await asyncio.sleep(0.1)
        upstream.may_answer.set()
        await until(lambda: len(kept(rig)) == 2)
        await asyncio.sleep(0.05)
    # Then only those that were due are left
    assert sorted(upstream.asked) == ["a", "b"]


async def test_another_configuration_waits_for_no_sample_of_the_old_one(rig: Rig) -> None:
    of, upstream = sampled({}), Upstream()
    upstream.may_answer.clear()
    async with sampling(rig, of, upstream) as known:
        await until(lambda: upstream.open == 1)
        known.replace(current(of))
        await until(lambda: upstream.open == 0)

    assert kept(rig) == []


async def test_leader_whose_lease_is_over_asks_nobody(rig: Rig) -> None:
    upstream, lease = Upstream(), Over(rig)
    async with sampling(rig, sampled({}), upstream, lease):
        await until(lambda: lease.asked >= 2)
    assert upstream.asked == []
    assert kept(rig) == []
