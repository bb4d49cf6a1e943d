"""Which requests follow a pin, which ones make one, and what tells sessions apart.

`pair` is all but always drawn to the first engine, so that only a pin leads to the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.config.schema import Affinity
from tests.cluster.harness import ADMIN_KEY, body, wait_until
from tests.integration.conftest import Gateway, Make

PATH = "/v1/chat/completions"
PINS = "gw:{m:pair}:pin:*"
MAX_AGE_S = 3600
SOURCES = Affinity().session_ids
SOME = {"x-concord-session": "some"}


@pytest.fixture(scope="module")
def sticky_gateway(make_gateway: Make) -> Gateway:
    """Keeps callers where they are, for an hour at most."""
    return make_gateway({"affinity": {"max_age_seconds": MAX_AGE_S}})


@pytest.fixture
def sticky(sticky_gateway: Gateway) -> Iterator[Gateway]:
    """The sticky gateway, for this test."""
    sticky_gateway.reset()
    yield sticky_gateway
    wait_until(sticky_gateway.is_idle, "nothing claimed or in flight", 5)


def pins(gateway: Gateway) -> dict[str, str]:
    """All pins of `pair`, by key."""
    redis = gateway.cluster.redis
    return {key: str(redis.get(key)) for key in redis.keys(PINS)}


def now_ms(gateway: Gateway) -> int:
    """By Redis's clock."""
    seconds, micros = gateway.cluster.redis.time()
    return int(seconds * 1000 + micros // 1000)


def location(pin: str) -> str:
    return pin.partition(" ")[0].removeprefix("location=")


def date(pin: str, name: str) -> int:
    """A date of a pin, in ms."""
    return int(pin.partition(f"{name}=")[2].split()[0])


async def ask(gateway: Gateway, *, model: str = "pair", **headers: str) -> str:
    """Ask as the session `some`; returns the location that has answered."""
    async with gateway.http() as http:
        headers = {**SOME, **{name.replace("_", "-"): text for name, text in headers.items()}}
        answer = await http.post(PATH, json=body(model=model), headers=headers)
    assert answer.status_code == 200
    return answer.headers["x-concord-endpoint"].partition(":")[2]


async def pin_to_second(gateway: Gateway, *, created_ms: int, until_ms: int) -> str:
    """Make the session's pin one to the second engine; returns its key."""
    await ask(gateway)
    (key,) = pins(gateway)
    at = gateway.second.location
    gateway.cluster.redis.set(key, f"location={at} created_ms={created_ms} until_ms={until_ms}")
    return key


def given(source: str, session: str) -> dict[str, Any]:
    """What a request must have to tell its session in one of the ways."""
    name, _, inner = source.partition(".")
    if source.startswith(("x-", "session-")):
        return {"headers": {source: session}}
    return {"json": {name: {inner: session} if inner else session}}


async def ask_given(http: httpx.AsyncClient, sources: tuple[str, ...]) -> None:
    """Ask once, with another session in each of the sources."""
    headers: dict[str, str] = {}
    request = body(model="pair")
    for source in sources:
        parts = given(source, f"session-in-{source}")
        headers |= parts.get("headers", {})
        request |= parts.get("json", {})
    answer = await http.post(PATH, json=request, headers=headers)
    assert answer.status_code == 200


async def test_the_first_source_that_a_request_has_names_its_session(sticky: Gateway) -> None:
    keys: list[str] = []
    async with sticky.http() as http:
        # Given what each source alone leads to
        for source in SOURCES:
            await ask_given(http, (source,))
            (new,) = pins(sticky).keys() - set(keys)
            keys.append(new)
        # When a request has one of them and all that come after it
        for place, key in enumerate(keys):
            sticky.cluster.redis.delete(*pins(sticky))
            await ask_given(http, SOURCES[place:])
            # Then that one counts
            assert list(pins(sticky)) == [key]
        # And one that has none of them is a session, too
        await http.post(PATH, json=body(model="pair"))
        assert len(pins(sticky)) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_pin_is_followed_and_lasts_longer_with_each_request(
    stream: bool, sticky: Gateway
) -> None:
    now = now_ms(sticky)
    key = await pin_to_second(sticky, created_ms=now - 200_000, until_ms=now + 100_000)
    async with sticky.http(headers=SOME) as http:
        answer = await http.post(PATH, json=body(model="pair", stream=stream))
    assert answer.headers["x-concord-endpoint"] == f"pair:{sticky.second.location}"
    pin = pins(sticky)[key]
    assert location(pin) == sticky.second.location
    assert date(pin, "created_ms") == now - 200_000
    assert date(pin, "until_ms") >= now + 300_000


async def test_a_pin_never_outlives_its_greatest_age_however_often_it_is_followed(
    sticky: Gateway,
) -> None:
    # Given a pin that is nearly as old as one may get
    now, age_ms = now_ms(sticky), MAX_AGE_S * 1000
    created_ms = now - age_ms + 60_000
    key = await pin_to_second(sticky, created_ms=created_ms, until_ms=now + 60_000)
    # When it is followed, it lasts no longer for that
    for _ in range(3):
        assert await ask(sticky) == sticky.second.location
        assert date(pins(sticky)[key], "until_ms") == created_ms + age_ms
    # And one that is too old is none: the next draw makes another
    await pin_to_second(sticky, created_ms=now - age_ms, until_ms=now + 60_000)
    assert await ask(sticky) == sticky.first.location
    pin = pins(sticky)[key]
    assert location(pin) == sticky.first.location
    assert date(pin, "created_ms") >= now


async def test_failover_drops_the_pin_and_makes_none(sticky: Gateway) -> None:
    # Given a session on the first engine
    await ask(sticky)
    assert [location(pin) for pin in pins(sticky).values()] == [sticky.first.location]
    # When that fails and the second answers
    sticky.fault(status=503, count=1)
    assert await ask(sticky) == sticky.second.location
    # Then the session is on none, and its next request is drawn
    assert pins(sticky) == {}
    assert await ask(sticky) == sticky.first.location
    assert [location(pin) for pin in pins(sticky).values()] == [sticky.first.location]


async def test_a_request_that_nothing_can_serve_leaves_no_pin(sticky: Gateway) -> None:
    for engine in (sticky.first, sticky.second):
        engine.fault(status=503)
    async with sticky.http(headers=SOME) as http:
        answer = await http.post(PATH, json=body(model="pair"))
    assert answer.status_code == 503
    assert pins(sticky) == {}


async def test_a_route_pin_neither_makes_a_pin_nor_follows_nor_drops_one(sticky: Gateway) -> None:
    first, second = (f"pair:{engine.location}" for engine in (sticky.first, sticky.second))
    key = f"Bearer {ADMIN_KEY}"
    # When an admin asks for a route, nothing is remembered
    assert await ask(sticky, authorization=key, x_route_pin=second) == sticky.second.location
    assert pins(sticky) == {}
    # Given the admin's session on the first engine
    await ask(sticky, authorization=key)
    before = pins(sticky)
    assert [location(pin) for pin in before.values()] == [sticky.first.location]
    # When it asks for the other, or for one that fails, then the pin stays as it is
    assert await ask(sticky, authorization=key, x_route_pin=second) == sticky.second.location
    assert pins(sticky) == before
    sticky.fault(status=503, count=1)
    async with sticky.http(headers={**SOME, "authorization": key, "x-route-pin": first}) as http:
        failed = await http.post(PATH, json=body(model="pair"))
    assert failed.status_code == 503
    assert pins(sticky) == before


async def test_where_affinity_is_off_nobody_is_pinned(gateway: Gateway) -> None:
    for _ in range(3):
        assert await ask(gateway) == gateway.first.location
    assert pins(gateway) == {}
