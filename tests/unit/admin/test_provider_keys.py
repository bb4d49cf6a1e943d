"""Upstream keys under /admin/provider-keys: never shown, kept encrypted, kept for a role."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from gateway.admin.probes import Probes
from gateway.admin.reload import Reloaded
from gateway.admin.surface import Admin
from gateway.admission.secret import Secret
from gateway.auth.keys import Authenticator
from gateway.auth.made import MadeKeys
from gateway.config.result import Config
from gateway.core.digests import upstream_key_id
from gateway.core.route import UpstreamKey
from gateway.dispatch.sealing import Seal
from gateway.dispatch.send import Dispatcher
from gateway.state.caller_store import CallerStore
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.key_store import KeyStore
from gateway.state.offloads import OffloadLog
from gateway.state.policy import Policy
from gateway.state.pool_store import Pool, PoolStore
from tests.fakes.builders import config, key, model, route
from tests.fakes.surfaces import client_of
from tests.unit.admin.conftest import Embedded

CANARY = "sk-canary-of-an-upstream"
SECRET = "of the tests"
PATH = "/admin/provider-keys"
KEYS = [key("sk-pro", "pro", role="internal"), key("sk-ops", "ops", role="admin")]
CONFIG = replace(
    config(
        model(
            route("a", provider="acme", api_keys=(UpstreamKey("k0"), UpstreamKey("k1", "pro"))),
            route("b", provider="acme/eu"),
        ),
        keys=KEYS,
    ),
    secret=SECRET,
)


def digest(of: str) -> str:
    secret = Secret(SECRET).key
    assert secret
    return upstream_key_id(secret, of)


@pytest.fixture
def pools(store: Embedded) -> PoolStore:
    return PoolStore(store.runner, store.keys)


def served(store: Embedded, pools: PoolStore, of: Config, secret: Secret) -> httpx.AsyncClient:
    async def reload() -> Reloaded:
        return Reloaded(config_digest="same")

    key_store = KeyStore(store.runner, store.keys)
    admin = Admin(
        of,
        Authenticator(of, MadeKeys(key_store)),
        store,
        key_store,
        CallerStore(store.runner, store.keys),
        pool_store=pools,
        gate_store=GateStore(store.runner, store.keys, Channels(store.keys)),
        offload_log=OffloadLog(store.runner, store.keys),
        server=store.runner,
        policy=Policy(),
        secret=secret,
        replica_id="r1",
        probes=Probes(of, store, CoordinatorStore(store.runner, store.keys), Dispatcher({})),
        reload=reload,
    )
    return client_of(admin.routes(), "sk-ops")


@pytest.fixture
async def http(store: Embedded, pools: PoolStore) -> AsyncIterator[httpx.AsyncClient]:
    async with served(store, pools, CONFIG, Secret(SECRET)) as client:
        yield client


async def listed(http: httpx.AsyncClient, **query: str) -> dict[str, dict[str, Any]]:
    """By digest."""
    answer = await http.get(PATH, params=query)
    return {one["key"]: one for one in answer.raise_for_status().json()["keys"]}


async def add(http: httpx.AsyncClient, **values: str) -> dict[str, Any]:
    body = {"provider": "acme", "key": CANARY, **values}
    answer = await http.post(PATH, json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_the_configured_keys_are_listed_by_their_digests(http: httpx.AsyncClient) -> None:
    found = await listed(http)

    assert {id: one["min_role"] for id, one in found.items()} == {
        digest("k0"): "free",
        digest("k1"): "pro",
    }
    assert all(one["is_configured"] and one["id"] is None for one in found.values())


async def test_an_added_key_is_shown_by_its_digest_and_kept_encrypted(
    http: httpx.AsyncClient, store: Embedded, pools: PoolStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "concord"):
        made = await add(http, min_role="pro")

    assert (made["key"], made["min_role"], made["is_configured"]) == (digest(CANARY), "pro", False)
    assert (made["made_by"], made["id"].rpartition("/")[0]) == ("ops", "acme")
    (kept,) = (await pools.declared("acme")).added
    assert Seal(SECRET).open(kept.sealed, kept.id) == CANARY
    logs = str([vars(record) for record in caplog.records])
    assert "upstream_key_added" in logs
    for place in (str(await store.everything()), logs, str(await listed(http))):
        assert CANARY not in place


@pytest.mark.parametrize("provider", ["acme", "acme/eu"])
async def test_an_added_key_may_be_kept_otherwise_and_removed(
    http: httpx.AsyncClient, provider: str
) -> None:
    made = await add(http, provider=provider)

    kept = await http.post(f"{PATH}/{made['id']}/min-role", json={"min_role": "internal"})
    assert kept.json() == made | {"min_role": "internal"}
    removed = await http.delete(f"{PATH}/{made['id']}")
    assert removed.json() == {"id": made["id"], "removed": True}

    assert digest(CANARY) not in await listed(http)
    assert (await http.delete(f"{PATH}/{made['id']}")).status_code == 404
    gone = await http.post(f"{PATH}/{made['id']}/min-role", json={"min_role": "pro"})
    assert gone.status_code == 404


async def test_a_configured_key_is_kept_by_its_digest_until_that_is_lifted(
    http: httpx.AsyncClient,
) -> None:
    body = {"provider": "acme", "key": digest("k0"), "min_role": "admin"}

    kept = (await http.post(f"{PATH}/min-role-env", json=body)).json()
    assert (kept["min_role"], kept["kept_for"]) == ("admin", "admin")
    lifted = (await http.post(f"{PATH}/min-role-env", json={**body, "min_role": "free"})).json()
    assert (lifted["min_role"], lifted["kept_for"]) == ("free", None)


async def test_the_strictest_of_all_that_is_said_of_a_key_counts(http: httpx.AsyncClient) -> None:
    await add(http, key="k1", min_role="internal")
    body = {"provider": "acme", "key": digest("k1"), "min_role": "free"}

    shown = (await http.post(f"{PATH}/min-role-env", json=body)).json()

    assert (shown["min_role"], shown["is_configured"]) == ("internal", True)
    assert shown["id"]


async def test_what_is_said_of_a_key_stays_when_it_disappears_and_can_be_lifted(
    http: httpx.AsyncClient, store: Embedded, pools: PoolStore
) -> None:
    body = {"provider": "acme", "key": digest("k0"), "min_role": "pro"}
    await http.post(f"{PATH}/min-role-env", json=body)

    without = replace(CONFIG, models={"m": model(route("a", provider="acme"))})
    async with served(store, pools, without, Secret(SECRET)) as later:
        found = await listed(later)
        assert (found[digest("k0")]["kept_for"], found[digest("k0")]["is_configured"]) == (
            "pro",
            False,
        )
        await later.post(f"{PATH}/min-role-env", json={**body, "min_role": "free"})
        assert await listed(later) == {}


async def test_what_was_declared_under_another_secret_is_shown_as_void_and_can_be_taken_away(
    http: httpx.AsyncClient, store: Embedded, pools: PoolStore
) -> None:
    made = await add(http)
    body = {"provider": "acme", "key": digest("k0"), "min_role": "pro"}
    await http.post(f"{PATH}/min-role-env", json=body)

    changed = replace(CONFIG, secret="another")
    async with served(store, pools, changed, Secret("another")) as later:
        found = await listed(later)
        assert {key for key, one in found.items() if one["is_void"]} == {digest("k0"), made["key"]}
        assert len(found) == 4
        await later.post(f"{PATH}/min-role-env", json={**body, "min_role": "free"})
        await later.delete(f"{PATH}/{made['id']}")
        assert not any(one["is_void"] for one in (await listed(later)).values())


async def test_a_provider_that_no_route_has_any_more_is_listed_when_it_is_named(
    http: httpx.AsyncClient, pools: PoolStore
) -> None:
    await pools.retier("gone", digest("k9"), "pro")

    assert digest("k9") not in await listed(http)
    assert (await listed(http, provider="gone"))[digest("k9")]["kept_for"] == "pro"


async def test_a_muted_key_says_where_and_for_how_long(
    http: httpx.AsyncClient, pools: PoolStore
) -> None:
    keys = ((digest("k0"), 0), (digest("k1"), 1))
    pool = Pool(provider="acme", endpoint="m:a", at="a.invalid:80", epoch=0, keys=keys)
    await pools.release(
        pool,
        key=digest("k0"),
        lease="1",
        fault="key",
        status=401,
        rank=3,
        tried=[digest("k0")],
        mute_ms=20_000,
    )

    (mute,) = (await listed(http))[digest("k0")]["mutes"]

    assert (mute["at"], mute["status"], mute["failures"]) == ("a.invalid:80", 401, 0)
    assert 0 < mute["left_s"] <= 20
    assert (await listed(http))[digest("k1")]["mutes"] == []


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({}, 400, "provider"),
        ({"provider": "acme"}, 400, "key"),
        ({"provider": "acme", "key": CANARY, "min_role": "root"}, 400, "$.min_role"),
        ({"provider": "acme", "key": CANARY, "tier": "pro"}, 400, "tier"),
        ({"provider": "acme", "key": "a b"}, 400, "printable ASCII"),
        ({"provider": "acme", "key": " "}, 400, "printable ASCII"),
        ({"provider": "acme", "key": "x" * 9000}, 400, "printable ASCII"),
        ({"provider": "nope", "key": CANARY}, 404, "nope"),
    ],
)
async def test_what_is_no_key_is_refused_with_the_reason(
    http: httpx.AsyncClient, store: Embedded, body: dict[str, str], status: int, told: str
) -> None:
    answer = await http.post(PATH, json=body)

    assert answer.status_code == status
    assert told in answer.json()["error"]["message"]
    assert CANARY not in answer.text
    assert await store.everything() == {}


@pytest.mark.parametrize("key", [CANARY, "k0", "", "0" * 11, "0" * 13, "G" * 12])
async def test_whom_a_key_is_kept_for_is_said_by_its_digest_and_not_by_itself(
    http: httpx.AsyncClient, store: Embedded, key: str
) -> None:
    body = {"provider": "acme", "key": key, "min_role": "pro"}

    answer = await http.post(f"{PATH}/min-role-env", json=body)

    assert answer.status_code == 400
    assert "the 12 hex digits by which" in answer.json()["error"]["message"]
    assert CANARY not in answer.text
    assert await store.everything() == {}


async def test_a_key_is_added_once(http: httpx.AsyncClient) -> None:
    await add(http)

    again = await http.post(PATH, json={"provider": "acme", "key": CANARY, "min_role": "pro"})

    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")


async def test_without_a_secret_no_key_is_added(store: Embedded, pools: PoolStore) -> None:
    salted = Secret(None)
    salted.adopt("a salt")
    async with served(store, pools, replace(CONFIG, secret=None), salted) as http:
        answer = await http.post(PATH, json={"provider": "acme", "key": CANARY})
        assert answer.status_code == 400
        assert "CONCORD_SECRET" in answer.json()["error"]["message"]
        assert len(await listed(http)) == 2
    assert await store.everything() == {}


async def test_before_the_salt_is_known_nothing_is_told(store: Embedded, pools: PoolStore) -> None:
    async with served(store, pools, replace(CONFIG, secret=None), Secret(None)) as http:
        assert (await http.get(PATH)).status_code == 503


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/min-role-env", 404),
        ("POST", "/acme/00000000/min-role", 404),
        ("DELETE", "/acme/00000000", 404),
        ("DELETE", "/acme", 404),
        ("DELETE", "/00000000", 404),
        ("GET", "/acme/00000000", 405),
        ("PUT", "", 405),
    ],
)
async def test_what_is_not_there_is_told(
    http: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    body: dict[str, str] = {"min_role": "pro"}
    if path == "/min-role-env":
        body |= {"provider": "acme", "key": "0" * 12}

    assert (await http.request(method, PATH + path, json=body)).status_code == status


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("POST", ""),
        ("POST", "/min-role-env"),
        ("POST", "/acme/00000000/min-role"),
        ("DELETE", "/acme/00000000"),
    ],
)
@pytest.mark.parametrize(("sent", "status"), [("sk-wrong", 401), ("sk-pro", 403)])
async def test_others_than_admins_see_and_change_nothing(
    http: httpx.AsyncClient, store: Embedded, method: str, path: str, sent: str, status: int
) -> None:
    body = {"provider": "acme", "key": CANARY, "min_role": "pro"}
    answer = await http.request(method, PATH + path, headers={"x-api-key": sent}, json=body)

    assert answer.status_code == status
    assert await store.everything() == {}
