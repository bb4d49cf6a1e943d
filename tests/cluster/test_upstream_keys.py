"""Upstream keys through three replicas: what one has learned of a key, all know."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.collector import Collector
from tests.cluster.conftest import own_redis
from tests.cluster.harness import ADMIN_KEY, START_S, Cluster, Engine
from tests.cluster.load import Answer, ask, clients, until
from tests.cluster.provider import Provider
from tests.cluster.test_secrets import everything_in

FREE, PRO = "sk-caller-who-is-free", "sk-caller-who-is-pro"
K_FREE, K_ALL, K_PRO, K_ENV, K_ADDED = (
    f"sk-canary-upstream-{name}" for name in ("k-free", "k-all1", "k-pro1", "k-env1", "k-made")
)
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
PATH = "/admin/provider-keys"
FAST = {"ttft_ms": 0, "tokens_per_s": 0}
SESSIONS = itertools.count()
TIERED = {"api_keys": [K_FREE, {"key": K_PRO, "min_role": "pro"}]}
SEVERAL = {"api_keys": [K_FREE, K_ALL]}
ONE = {"api_key": K_ALL}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider().listening() as provider:
        yield provider


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector().listening() as collector:
        yield collector


@pytest.fixture(scope="module")
def pooled(
    tmp_path_factory: pytest.TempPathFactory, provider: Provider, collector: Collector
) -> Iterator[Cluster]:
    """Three replicas over four accounts of one provider's, each a model of its own."""

    def models(_: list[Engine]) -> list[dict[str, Any]]:
        accounts = {"m": TIERED, "several": SEVERAL, "one": ONE, "environment": {"api_key": K_ENV}}
        return [
            {
                "id": id,
                "name": id,
                "provider": f"acme-{id}",
                "route": [{"kind": "vllm", "base_url": provider.url, "location": "p", **keys}],
            }
            for id, keys in accounts.items()
        ]

    with pytest.MonkeyPatch.context() as environment, own_redis() as server:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        environment.setenv("ACME_ENVIRONMENT_API_KEY", K_ALL)
        with Cluster(
            tmp_path_factory.mktemp("pooled"),
            server.url,
            engines={"unused": FAST},
            models=models,
            keys=[
                {"id": "free", "key": FREE, "role": "free"},
                {"id": "pro", "key": PRO, "role": "pro"},
            ],
            routing={
                "affinity": {"enabled": True},
                "circuit": {"failure_threshold": 3},
                "upstream_keys": {"mute_seconds": 2},
                "state": {"socket_timeout_ms": 1000},
            },
        ) as cluster:
            yield cluster


@pytest.fixture
async def https(pooled: Cluster, provider: Provider) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client per replica; every key serves, and nothing is remembered of any."""
    pooled.reset()
    provider.statuses.clear()
    provider.sent.clear()
    if left := [key for key in pooled.redis.keys("gw:{k:*") if not key.endswith("declared_epoch")]:
        pooled.redis.delete(*left)
    async with clients(pooled.replicas) as opened:
        yield opened


async def newcomer(http: httpx.AsyncClient, model: str = "m", key: str = FREE) -> Answer:
    """A request of a conversation that has no key yet."""
    return await ask(http, model=model, key=key, session=f"s{next(SESSIONS)}")


async def soon(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask until something holds."""
    async with asyncio.timeout(START_S):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def alike(count: int, https: Sequence[httpx.AsyncClient]) -> Iterator[httpx.AsyncClient]:
    return itertools.islice(itertools.cycle(https), count)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_burst_of_free_callers_opens_no_circuit_and_pro_callers_keep_their_keys(
    pooled: Cluster, provider: Provider, https: list[httpx.AsyncClient], stream: bool
) -> None:
    # Given that the key of free callers is used up at the provider
    provider.statuses[K_FREE] = 429

    # When many of them come at once, while pro callers go on
    burst = [ask(http, model="m", key=FREE, stream=stream) for http in alike(90, https)]
    others = [ask(http, model="m", key=PRO, stream=stream) for http in alike(30, https)]
    answers = await asyncio.gather(*burst, *others)
    free, pro = answers[:90], answers[90:]
    later = [await ask(http, model="m", key=PRO, stream=stream) for http in alike(6, https)]

    # Then the former are told so, and the latter have noticed nothing
    assert {answer.status for answer in free} <= {429, 503}
    assert {answer.code for answer in free if answer.status == 503} <= {"upstream_keys_reserved"}
    assert {(answer.status, answer.engine) for answer in (*pro, *later)} == {(200, K_PRO[-6:])}
    row = pooled.row("m")
    assert not [name for name in row if name.endswith((":circuit", ":failures", ":availability"))]
    assert provider.sent_twice() == set()
    # And the key is left alone by all replicas
    await until(lambda: pooled.is_idle("m"), "an idle model")
    before = provider.counts()[K_FREE]
    refused = [await newcomer(http) for http in https]
    assert [answer.code for answer in refused] == ["upstream_keys_reserved"] * 3
    assert provider.counts()[K_FREE] == before


@pytest.mark.parametrize("status", [401, 429])
async def test_a_refused_key_is_out_for_all_replicas_by_their_next_request_and_returns(
    provider: Provider, https: list[httpx.AsyncClient], status: int
) -> None:
    for http in https:
        assert (await newcomer(http, "several")).engine == K_FREE[-6:]

    # When the provider refuses a key, one request finds out, and is served with another
    provider.statuses[K_FREE] = status
    provider.sent.clear()
    assert (await newcomer(https[0], "several")).engine == K_ALL[-6:]
    assert [key for _, key in provider.sent] == [K_FREE, K_ALL]

    # Then nobody else sends it
    served = [(await newcomer(http, "several")).engine for http in https]
    assert served == [K_ALL[-6:]] * 3
    assert provider.counts() == {K_FREE: 1, K_ALL: 4}

    # And put back, it returns
    del provider.statuses[K_FREE]

    async def has_returned() -> bool:
        return (await newcomer(https[1], "several")).engine == K_FREE[-6:]

    await soon(has_returned)
    assert [(await newcomer(http, "several")).engine for http in https] == [K_FREE[-6:]] * 3


async def test_keys_of_the_environment_join_their_provider(
    provider: Provider, https: list[httpx.AsyncClient]
) -> None:
    provider.statuses[K_ENV] = 402

    answers = [await newcomer(http, "environment") for http in https]

    assert {answer.engine for answer in answers} == {K_ALL[-6:]}
    assert provider.counts() == {K_ENV: 1, K_ALL: 3}


async def test_a_key_that_is_added_kept_and_removed_through_one_replica_counts_in_all(
    pooled: Cluster, provider: Provider, https: list[httpx.AsyncClient]
) -> None:
    # Given a route with one key, which asks nobody
    for http in https:
        assert (await newcomer(http, "one")).engine == K_ALL[-6:]

    # When another one is added for pro callers
    body = {"provider": "acme-one", "key": K_ADDED, "min_role": "pro"}
    made = await https[0].post(PATH, json=body, headers=ADMIN)
    assert made.status_code == 201

    # Then they are served with it by all, soon
    async def all_have_it() -> bool:
        engines = {(await newcomer(http, "one", PRO)).engine for http in https}
        return engines == {K_ADDED[-6:]}

    await soon(all_have_it)
    assert (await newcomer(https[1], "one", FREE)).engine == K_ALL[-6:]

    # And from now on every change counts with the next request
    key = next(
        one["key"]
        for one in (await https[1].get(PATH, headers=ADMIN)).json()["keys"]
        if one["provider"] == "acme-one" and one["is_configured"]
    )
    kept = {"provider": "acme-one", "key": key, "min_role": "internal"}
    await https[1].post(f"{PATH}/min-role-env", json=kept, headers=ADMIN)
    for http in https:
        assert (await newcomer(http, "one", FREE)).code == "upstream_keys_reserved"
        assert (await newcomer(http, "one", PRO)).engine == K_ADDED[-6:]
    id = made.json()["id"]
    assert (await https[2].delete(f"{PATH}/{id}", headers=ADMIN)).status_code == 200
    for http in https:
        assert (await newcomer(http, "one", PRO)).code == "upstream_keys_reserved"
    assert "circuit" not in str(pooled.row("one"))


async def test_no_key_shows_in_a_log_a_trace_in_redis_or_in_an_error(
    pooled: Cluster, provider: Provider, https: list[httpx.AsyncClient], collector: Collector
) -> None:
    every = (K_FREE, K_ALL, K_PRO, K_ENV, K_ADDED)
    texts: list[str] = []
    # Given a key that was added, and providers whose errors quote the key they were sent
    body = {"provider": "acme-one", "key": K_ADDED}
    made = await https[0].post(PATH, json=body, headers=ADMIN)
    texts += [made.text, (await https[0].post(PATH, json=body, headers=ADMIN)).text]
    # And keys that people take for something else
    texts += [await misplaced(https[0], key) for key in every]
    for status in (200, 400, 401, 402, 403, 404, 422, 429, 500):
        provider.statuses = dict.fromkeys(every, status)
        # When they are asked by everybody, in every way
        ways = itertools.product(("m", "several", "one", "environment"), (FREE, PRO), (False, True))
        for http, (model, key, stream) in zip(itertools.cycle(https), ways, strict=False):
            answer = await http.post(
                "/v1/chat/completions",
                json={
                    "model": model,
                    "stream": stream,
                    "messages": [{"role": "user", "content": "hi"}],
                },
                headers={"authorization": f"Bearer {key}"},
            )
            if status != 200:
                texts.append(answer.text)
        pooled.redis.delete(*pooled.redis.keys("gw:{m:*}:endpoints"))  # no open circuit hides one
        if mutes := pooled.redis.keys("gw:{k:*}:mutes"):
            pooled.redis.delete(*mutes)
    for http in https:
        for path in ("status", "provider-keys", "routing/weights"):
            texts.append((await http.get(f"/admin/{path}", headers=ADMIN)).text)
        texts.append((await http.get("/health/deep", headers=ADMIN)).text)

    # Then each has been sent to the provider, and is nowhere else
    assert set(every) <= {key for _, key in provider.sent}
    assert provider.sent_twice() == set()
    await until(lambda: b"upstream_auth_error" in collector.raw or collector.received, "spans")
    stored = everything_in(pooled.redis)
    logged = "".join(replica.text() for replica in pooled.replicas)
    assert "upstream_key_muted" in logged
    assert "sealed=" in stored
    for key in every:
        assert key not in logged
        assert key not in stored
        assert key.encode() not in collector.raw
        assert not any(key in text for text in texts)


async def misplaced(http: httpx.AsyncClient, key: str) -> str:
    """Everything that is said to who gives an upstream key where something else belongs."""
    weight = {"weight": 1.0}
    chat = {"model": key, "messages": [{"role": "user", "content": "hi"}]}
    asked = (
        ("POST", PATH, {"provider": key, "key": "another-key"}),
        ("POST", PATH, {"provider": "acme-one", "key": "another-key", "min_role": key}),
        ("POST", PATH, {"provider": "acme-one", key: "another-key"}),
        ("POST", f"{PATH}/min-role-env", {"provider": "acme-one", "key": key, "min_role": "pro"}),
        ("POST", f"{PATH}/{key}/min-role", {"min_role": "pro"}),
        ("DELETE", f"{PATH}/{key}", None),
        ("GET", f"{PATH}?provider=acme-one&key={key}", None),
        ("POST", "/admin/keys", {"id": key}),
        ("POST", "/admin/keys", {"id": "a", "team": key}),
        ("POST", "/admin/keys", {"id": "a", "models": [key]}),
        ("PATCH", f"/admin/keys/{key}", {"role": "pro"}),
        ("PUT", f"/admin/routing/weights/m/{key}", weight),
        ("PUT", f"/admin/routing/weights/{key}/p", weight),
        ("PUT", f"/admin/routing/providers/{key}", {"disabled": False}),
        ("DELETE", f"/admin/routing/circuits/m/{key}", None),
        ("PUT", "/admin/routing/offload-routes/m", {"route_id": key, "wait_seconds": 1}),
        ("GET", f"/admin/routing/explain?model={key}", None),
        ("GET", f"/admin/{key}", None),
        ("POST", "/v1/chat/completions", chat),
        ("GET", f"/v1/models/{key}", None),
    )
    answers = [
        await http.request(method, path, json=content, headers=ADMIN)
        for method, path, content in asked
    ]
    assert [answer.status_code for answer in answers if answer.status_code >= 500] == []
    return "".join(answer.text for answer in answers)


def test_no_key_shows_when_a_configuration_is_checked(tmp_path: Path) -> None:
    """The keys of files and of the environment, also where something is wrong with them."""
    from gateway.config import load

    (tmp_path / "models.yaml").write_text(
        f"models: [{{id: m, name: M, provider: acme, kind: vllm, base_url: 'http://a', "
        f"api_keys: ['{K_FREE}', {{key: '{K_PRO} x', min_role: prou}}, {{kay: '{K_ALL}'}}]}}]"
    )
    loaded = load(tmp_path, {"ACME_API_KEY": f"{K_ENV}é"})

    told = "\n".join(map(str, loaded.problems))
    assert len(loaded.errors) >= 4
    for key in (K_FREE, K_PRO, K_ALL, K_ENV):
        assert key not in told
