"""Quotas: whom the coordinator asks, how an answer is read, and what is said of one that is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from coordinator import quota
from coordinator.quota import (
    CannotTell,
    Quotas,
    Reported,
    fetch,
    follow,
    local_day,
    register_quota_fetcher,
)
from gateway.config.quota_schema import QuotaFetcher
from gateway.config.result import Config
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.supply import LOCAL, QuotaState, Source, Supply
from gateway.state.supply_store import SupplyStore
from tests.fakes.builders import config, model, route
from tests.unit.coordinator.conftest import EPOCH, Rig

ANSWER = {"data": {"plans": [{"used": 12, "of": "500", "resets": 1_900_000_000}]}}
FETCHER: dict[str, Any] = {
    "url": "http://acme.example/usage",
    "headers": {"authorization": "Bearer k"},
    "usages": [
        {
            "usage_label": "daily",
            "unit": "requests",
            "used": "data.plans[0].used",
            "limit": "data.plans[0].of",
            "reset_at": "data.plans[0].resets",
        }
    ],
}


def fetcher(**values: Any) -> QuotaFetcher:
    return msgspec.convert({**FETCHER, **values}, QuotaFetcher)


class Provider(httpx.AsyncBaseTransport):
    """Answers as a test says."""

    def __init__(self, answer: httpx.Response | Exception | None = None) -> None:
        self.answer = answer or httpx.Response(200, json=ANSWER)
        self.asked: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return httpx.Response(self.answer.status_code, content=self.answer.content)


class TestAnAnswer:
    async def test_is_read_by_its_paths(self) -> None:
        provider = Provider()

        assert await fetch(provider, fetcher()) == [
            Reported(
                usage_label="daily",
                unit="requests",
                used=12,
                limit=500,
                reset_at_ms=1_900_000_000_000,
            )
        ]
        assert provider.asked[0].headers["authorization"] == "Bearer k"

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (httpx.Response(503), "an answer of 503"),
            (httpx.Response(200, content=b"<html>"), "an answer that is no JSON"),
            (httpx.Response(200, json={"data": 1}), "there is nothing at data.plans[0].used"),
            (
                httpx.Response(200, json={"data": {"plans": [{"used": True}]}}),
                "there is no number of 0 or more at data.plans[0].used",
            ),
            (
                httpx.Response(200, json={"data": {"plans": [{"used": 10**400}]}}),
                "there is no number at data.plans[0].used",
            ),
            (httpx.ConnectError("http://acme.example secret"), "no answer: ConnectError"),
        ],
    )
    async def test_that_says_nothing_is_told_in_a_sentence(
        self, answer: httpx.Response | Exception, said: str
    ) -> None:
        with pytest.raises(CannotTell) as told:
            await fetch(Provider(answer), fetcher())

        assert str(told.value) == said

    async def test_that_does_not_come_is_given_up(self) -> None:
        class Silent(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                await asyncio.sleep(60)
                raise AssertionError

        with pytest.raises(CannotTell, match=r"no answer within 0.01 s"):
            await fetch(Silent(), fetcher(timeout_s=0.01))

    @pytest.mark.parametrize(
        ("found", "at_ms"),
        [
            (1_900_000_000, 1_900_000_000_000),
            ("1900000000", 1_900_000_000_000),
            (1_900_000_000_000, 1_900_000_000_000),
            ("2030-03-17T17:46:40Z", 1_900_000_000_000),
            ("2030-03-17T17:46:40", 1_900_000_000_000),
            ("2030-03-17T19:46:40+02:00", 1_900_000_000_000),
            ("soon", 0),
            (None, 0),
            (-1, 0),
            (10**400, 0),
        ],
    )
    async def test_may_date_the_next_period_as_it_likes(self, found: object, at_ms: int) -> None:
        answer = {"data": {"plans": [{"used": 1, "of": 2, "resets": found}]}}
        (report,) = await fetch(Provider(httpx.Response(200, json=answer)), fetcher())

        assert report.reset_at_ms == at_ms


def test_a_path_leads_through_names_and_places() -> None:
    assert follow({"a": [{"b-c": 7}]}, "a[0].b-c") == 7


def test_the_quota_that_is_counted_here_is_of_a_day_in_utc() -> None:
    (report,), since_ms = local_day(1_700_000_000_000)

    assert since_ms == 1_699_920_000_000
    assert report.reset_at_ms - since_ms == 86_400_000
    assert report.used == 0


def drawing(provider: str = "acme", label: str = "daily", **fetchers: QuotaFetcher) -> Config:
    """Two models on one quota of 500."""
    unit = "day" if provider == LOCAL else "requests"
    source = Source(provider=provider, usage_label=label, unit=unit)
    supply = Supply(kind="quota", pool="team", limit=500, source=source)
    params = RoutewiseParams(quota_snapshot_refresh_interval_sec=0.05)
    models = [
        model(
            route("a", model_id=id, supply=supply),
            route("b", model_id=id),
            id=id,
            router="routewise",
            router_params=params,
        )
        for id in ("m", "n")
    ]
    return msgspec.structs.replace(config(*models), quota_fetchers=fetchers)


@asynccontextmanager
async def asking(rig: Rig, of: Config, provider: Provider) -> AsyncIterator[SupplyStore]:
    """Asks while the context is open."""
    supplies = SupplyStore(rig.runner, rig.keys)
    quotas = Quotas(supplies, rig.coordinator, provider, await rig.known(of))
    task = asyncio.create_task(quotas.run(EPOCH))
    try:
        yield supplies
    finally:
        task.cancel()
        await asyncio.wait({task})


async def comes_to(supplies: SupplyStore, used: float) -> QuotaState:
    """Wait until so much of the pool is used."""
    for _ in range(500):
        found, *_ = await supplies.state("team")
        if found and found.used == used:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"{found}, not {used}")


async def told(rig: Rig, state: str) -> str:
    """Wait until the pool is told to be in a state. Returns why."""
    for _ in range(500):
        published = (await rig.store.coordinator()).published.get("quota:team")
        if published and published.words["state"] == state:
            return published.words.get("why", "")
        await asyncio.sleep(0.01)
    raise AssertionError(published)


async def test_a_provider_is_asked_again_and_again_once_for_all_models(rig: Rig) -> None:
    provider = Provider()
    async with asking(rig, drawing(acme=fetcher()), provider) as supplies:
        found = await comes_to(supplies, 12)
        provider.answer = httpx.Response(
            200, json={"data": {"plans": [{"used": 13, "of": 400, "resets": 0}]}}
        )
        after = await comes_to(supplies, 13)
        why = await told(rig, "known")

    assert (found.limit, after.limit) == (500, 400)
    assert "its%20provider%20says%20that%20the%20limit%20is%20400" in why


async def test_what_is_counted_here_needs_no_provider(rig: Rig) -> None:
    of = drawing(LOCAL, "requests")
    async with asking(rig, of, Provider(httpx.ConnectError("none"))) as supplies:
        await comes_to(supplies, 0)
        supply = of.models["m"].routes[0].supply
        assert supply
        assert await supplies.take(supply, claim="r.1", lease_ms=1000) == "taken"
        await asyncio.sleep(0.2)  # it is reported again meanwhile
        found = await comes_to(supplies, 1)

    assert found.limit == 500


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (drawing("acmee", acme=fetcher()), "nobody%20asks%20acmee"),
        (drawing(label="dayly", acme=fetcher()), "no%20usage%20is%20named%20dayly/requests"),
    ],
)
async def test_a_source_that_leads_nowhere_is_said(rig: Rig, of: Config, why: str) -> None:
    async with asking(rig, of, Provider()) as supplies:
        said = await told(rig, "unknown")
        assert (await supplies.state("team"))[0] is None

    assert said.startswith(why)


class TestAFetcherOfAnotherKind:
    @pytest.fixture(autouse=True)
    def registry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(quota, "_registered", {})

    async def test_tells_instead_of_the_file(self, rig: Rig) -> None:
        async def tells() -> list[Reported]:
            return [Reported(usage_label="daily", unit="requests", used=77)]

        register_quota_fetcher("acme", tells)
        async with asking(rig, drawing(acme=fetcher()), Provider()) as supplies:
            found = await comes_to(supplies, 77)

        assert found.limit == 500

    async def test_may_say_why_it_cannot_tell(self, rig: Rig) -> None:
        async def cannot() -> list[Reported]:
            raise CannotTell("it is closed")

        register_quota_fetcher("acme", cannot)
        async with asking(rig, drawing(), Provider()):
            assert await told(rig, "unknown") == "it%20is%20closed"
