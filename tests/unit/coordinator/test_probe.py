"""Health probes: which addresses, what is told, and what counts for a circuit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from coordinator.probe import Prober, targets_of
from gateway.config.result import Config
from gateway.config.schema import Circuit, Deployment
from gateway.state.coordination import ProbeResult, probe_name
from gateway.state.coordinator_store import Fenced
from tests.fakes.builders import config, model, route
from tests.unit.coordinator.conftest import EPOCH, Over, Rig, current, held, until

A = "http://a.invalid/v1"
B = "http://b.invalid/v1"


def probed(*deployments: Deployment, **settings: Any) -> Config:
    given = {"health_check": 1, "local_deployment": deployments, **settings}
    return config(model(route("a"), route("b"), aliases=("alias",)), **given)


def at(address: str, *models: str) -> Deployment:
    return Deployment(endpoint=address, models=models or ("m",))


class Engines(httpx.AsyncBaseTransport):
    """Answer by host; an exception is raised."""

    def __init__(self, **answers: int | Exception) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        answer = self.answers[request.url.host.partition(".")[0]]
        if isinstance(answer, Exception):
            raise answer
        if answer == 0:
            await asyncio.Event().wait()
        return httpx.Response(answer)


class TestTargets:
    def test_without_a_health_check_there_are_none(self) -> None:
        assert targets_of(probed(at(A), health_check=0)) == []

    def test_every_local_deployment_is_one_however_often_it_is_named(self) -> None:
        found = targets_of(probed(at(A), at(B, "other"), at(A, "alias")))
        assert [target.address for target in found] == [A, B]

    @pytest.mark.parametrize(
        ("address", "url"),
        [
            ("http://a:8000/v1", "http://a:8000/health"),
            ("http://a:8000", "http://a:8000/health"),
            ("http://a/base/v1", "http://a/base/health"),
            ("http://a/v10", "http://a/v10/health"),
        ],
    )
    def test_health_is_asked_for_beside_v1(self, address: str, url: str) -> None:
        (target,) = targets_of(probed(at(address)))
        assert target.url == url

    def test_reported_alone_they_move_no_circuit(self) -> None:
        (target,) = targets_of(probed(at(A)))
        assert target.moves == ()

    @pytest.mark.parametrize("name", ["m", "alias"])
    def test_circuits_of_the_routes_there_follow_where_it_is_said(self, name: str) -> None:
        found = targets_of(probed(at(A, name), at(B, "x"), probe_effect="circuit"))
        assert [target.moves for target in found] == [(("m", "a"),), ()]

    def test_no_time_at_all_counts_as_a_second(self) -> None:
        (target,) = targets_of(probed(at(A), timeout=0))
        assert target.timeout_s == 1


async def probe(
    rig: Rig,
    of: Config,
    engines: Engines,
    seen: Callable[[Mapping[str, ProbeResult]], bool],
    *,
    replicas: int = 1,
) -> Mapping[str, ProbeResult]:
    """Probe until what is published looks as it is to; returns that."""
    known = await rig.known(of, replicas=replicas)
    prober = Prober(rig.store, rig.coordinator, engines, known, rig.tally, lease=held(rig))
    probing = asyncio.create_task(prober.round(EPOCH))
    try:
        for _ in range(1500):
            if seen(found := (await rig.store.coordinator()).probes()):
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(f"it never looked as it should, but so: {found}")
    finally:
        probing.cancel()
        await asyncio.wait({probing})


async def test_what_each_probe_finds_is_published(rig: Rig) -> None:
    engines = Engines(a=200, b=503)
    found = await probe(rig, probed(at(A), at(B)), engines, lambda found: len(found) == 2)
    assert (found[A].healthy, found[A].status, found[A].failures) == (True, 200, 0)
    assert (found[B].healthy, found[B].status, found[B].failures) == (False, 503, 1)
    counts = rig.tally.take()
    assert counts["probed"] >= 2
    assert counts["failed"] >= 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.ConnectError("no"), "ConnectError"),
        (httpx.ReadError("cut"), "ReadError"),
        (0, "timeout"),
    ],
    ids=["refused", "cut off", "silent"],
)
async def test_no_answer_is_told_with_the_reason(
    rig: Rig, answer: int | Exception, error: str
) -> None:
    of = probed(at(A), timeout=1)
    found = await probe(rig, of, Engines(a=answer), lambda found: A in found)
    assert (found[A].healthy, found[A].status, found[A].error) == (False, None, error)


@pytest.mark.parametrize("status", [301, 404, 500])
async def test_only_a_status_of_success_is_health(rig: Rig, status: int) -> None:
    found = await probe(rig, probed(at(A)), Engines(a=status), lambda found: A in found)
    assert not found[A].healthy


async def test_new_leader_goes_on_where_the_last_one_was(rig: Rig) -> None:
    # Given an address that has just been probed, and one that is not probed any more
    words = "healthy=0 latency_ms=1 failures=7"
    for address in (A, B):
        await rig.coordinator.publish(EPOCH - 1, probe_name(address), words)
    engines = Engines(a=500)
    # When another leader begins
    found = await probe(rig, probed(at(A)), engines, lambda found: found[A].failures > 7)
    # Then it counts on, has not asked at once, and the other one is forgotten
    assert found[A].failures == 8
    assert len(engines.asked) == 1
    assert found.keys() == {A}


async def test_circuit_opens_with_as_many_failed_probes_as_it_takes_and_closes_with_a_passed_one(
    rig: Rig,
) -> None:
    of = probed(at(A), probe_effect="circuit")
    engines = Engines(a=500)
    await probe(rig, of, engines, lambda found: A in found and found[A].failures == 2)
    assert rig.row() == {}
    await probe(rig, of, engines, lambda found: found[A].failures >= 3)
    assert rig.row().get("a:circuit") == "open"
    assert "b:circuit" not in rig.row()
    engines.answers["a"] = 200
    await probe(rig, of, engines, lambda found: found[A].healthy and not rig.row().get("a:circuit"))


@pytest.mark.parametrize("status", [302, 401, 404])
async def test_an_answer_that_says_nothing_of_the_engine_is_shown_and_moves_no_circuit(
    rig: Rig, status: int
) -> None:
    rig.put("m", a__circuit="open", a__opened_at_ms=1)
    of = probed(at(A), at(B), probe_effect="circuit", circuit=Circuit(failure_threshold=1))
    engines = Engines(a=status, b=status)
    found = await probe(rig, of, engines, lambda found: len(found) == 2)
    for one in found.values():
        assert (one.healthy, one.status, one.failures) == (False, status, 0)
    assert rig.row() == {"a:circuit": "open", "a:opened_at_ms": "1"}


async def test_circuit_stays_where_probes_are_reported_alone(rig: Rig) -> None:
    engines = Engines(a=500)
    await probe(rig, probed(at(A)), engines, lambda f: A in f and f[A].failures >= 4)
    assert rig.row() == {}


async def test_coordinator_that_alone_cannot_connect_opens_nothing(rig: Rig) -> None:
    of = probed(at(A), probe_effect="circuit")
    engines = Engines(a=httpx.ConnectError("no"))
    await probe(rig, of, engines, lambda f: A in f and f[A].failures >= 4, replicas=3)
    assert "a:circuit" not in rig.row()
    assert rig.row()["a:conn"].startswith("c1:")


async def test_leader_whose_time_is_over_tells_nothing_and_ends(rig: Rig) -> None:
    known = await rig.known(probed(at(A)))
    await rig.coordinator.lease("c2", epoch=EPOCH, lease_ms=60_000, about="")
    prober = Prober(rig.store, rig.coordinator, Engines(a=200), known, rig.tally, lease=held(rig))
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(prober.round(EPOCH), 10)
    assert ended.group_contains(Fenced)
    assert (await rig.store.coordinator()).probes() == {}


async def test_no_more_engines_are_asked_at_a_time_than_is_said(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.probe.FIRST_WITHIN_S", 0.0)
    addresses = [f"http://{name}.invalid/v1" for name in "abcde"]
    of = probed(*map(at, addresses), probe_concurrency=2, timeout=60)
    engines = Engines(**dict.fromkeys("abcde", 200))
    answering = asyncio.Event()
    answer, open_now, most = engines.handle_async_request, 0, 0

    async def answer_later(request: httpx.Request) -> httpx.Response:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await answering.wait()
        open_now -= 1
        return await answer(request)

    monkeypatch.setattr(engines, "handle_async_request", answer_later)
    known = await rig.known(of)
    prober = Prober(rig.store, rig.coordinator, engines, known, rig.tally, lease=held(rig))
    probing = asyncio.create_task(prober.round(EPOCH))
    await until(lambda: open_now == 2)
    answering.set()
    await until(lambda: len(set(engines.asked)) == len(addresses))
    probing.cancel()
    await asyncio.wait({probing})
    assert most == 2


async def test_leader_whose_lease_is_over_asks_nobody(rig: Rig) -> None:
    known, lease, engines = await rig.known(probed(at(A))), Over(rig), Engines(a=200)
    prober = Prober(rig.store, rig.coordinator, engines, known, rig.tally, lease=lease)
    probing = asyncio.create_task(prober.round(EPOCH))
    await until(lambda: lease.asked)
    probing.cancel()
    await asyncio.wait({probing})
    assert engines.asked == []
    assert (await rig.store.coordinator()).probes() == {}


async def test_another_configuration_ends_a_round(rig: Rig) -> None:
    known = await rig.known(probed(at(A)))
    prober = Prober(rig.store, rig.coordinator, Engines(a=200), known, rig.tally, lease=held(rig))
    probing = asyncio.create_task(prober.round(EPOCH))
    await asyncio.sleep(0.05)
    known.replace(current(probed(at(B))))
    await asyncio.wait_for(probing, 10)
