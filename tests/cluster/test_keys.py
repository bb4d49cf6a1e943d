"""Keys that are made, changed and revoked through one replica count in all of them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from gateway.auth.made import new_secret
from gateway.config.keys import sha256
from gateway.state.server import PrivateRedis
from tests.cluster.harness import ADMIN_KEY, Cluster
from tests.cluster.load import ask, clients, until
from tests.cluster.test_secrets import everything_in

HOLDS_S = 5.0
"""Within which a change must hold everywhere."""
FILE_KEY = "sk-alice-of-the-tests"
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
KEYS = "/admin/keys"
FAST = {"ttft_ms": 0, "tokens_per_s": 0}


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, mortal_redis: PrivateRedis
) -> Iterator[Cluster]:
    """Three replicas that ask for keys."""
    with Cluster(
        tmp_path_factory.mktemp("keys"),
        mortal_redis.url,
        engines={"engine-a": FAST, "engine-b": FAST},
        keys=[{"id": "alice", "key": FILE_KEY}],
        routing={"state": {"lease_s": 1.5, "socket_timeout_ms": 200}},
    ) as cluster:
        yield cluster


@pytest.fixture
async def https(guarded: Cluster) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client per replica."""
    guarded.reset()
    async with clients(guarded.replicas) as opened:
        yield opened


@contextlib.contextmanager
def frozen(redis: PrivateRedis) -> Iterator[None]:
    """Redis answers nobody."""
    assert redis.process is not None
    redis.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        redis.process.send_signal(signal.SIGCONT)


async def make(http: httpx.AsyncClient, **asked: Any) -> tuple[str, str]:
    """Make a key; returns its id and its secret."""
    answer = await http.post(KEYS, json=asked, headers=ADMIN)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], answer.json()["key"]


async def statuses(https: list[httpx.AsyncClient], key: str) -> list[int]:
    """What each replica answers a request with that key."""
    answers = await asyncio.gather(*(ask(http, key=key, max_tokens=1) for http in https))
    return [answer.status for answer in answers]


async def listings(https: list[httpx.AsyncClient], key: str) -> list[int]:
    """What each replica answers to who only asks for the models, which needs no routing state."""
    answers = await asyncio.gather(
        *(http.get("/v1/models", headers={"x-api-key": key}) for http in https)
    )
    return [answer.status_code for answer in answers]


async def until_all(https: list[httpx.AsyncClient], key: str, status: int) -> None:
    """A change holds within its time, and a little more for a slow machine."""
    deadline = time.monotonic() + HOLDS_S + 5
    while set(await statuses(https, key)) != {status}:
        assert time.monotonic() < deadline, f"not all replicas answer {status}"
        await asyncio.sleep(0.2)


async def test_key_made_through_one_replica_works_at_once_through_all(
    https: list[httpx.AsyncClient],
) -> None:
    for maker in https:
        _, secret = await make(maker)
        assert await statuses(https, secret) == [200, 200, 200]


async def test_key_revoked_through_one_replica_is_refused_by_all_within_five_seconds(
    https: list[httpx.AsyncClient],
) -> None:
    id, secret = await make(https[0])
    assert await statuses(https, secret) == [200, 200, 200]

    assert (await https[1].delete(f"{KEYS}/{id}", headers=ADMIN)).status_code == 200

    await until_all(https, secret, 401)
    assert (await https[2].delete(f"{KEYS}/{id}", headers=ADMIN)).status_code == 404


async def test_change_through_one_replica_holds_in_all_within_five_seconds(
    https: list[httpx.AsyncClient],
) -> None:
    id, secret = await make(https[0], models=[])
    assert await statuses(https, secret) == [404, 404, 404]

    await https[1].patch(f"{KEYS}/{id}", json={"models": None}, headers=ADMIN)

    await until_all(https, secret, 200)


async def test_one_id_is_made_once_however_many_ask_for_it(https: list[httpx.AsyncClient]) -> None:
    answers = await asyncio.gather(
        *(http.post(KEYS, json={"id": "contested"}, headers=ADMIN) for http in https * 3)
    )
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 8
    (made,) = (answer.json() for answer in answers if answer.status_code == 201)
    assert await statuses(https, made["key"]) == [200, 200, 200]


async def test_changes_at_one_time_are_all_kept(https: list[httpx.AsyncClient]) -> None:
    id, _ = await make(https[0])
    changes = [{"rpm": 1000}, {"tpm": 2000}, {"max_parallel_requests": 30}]
    answers = await asyncio.gather(
        *(
            http.patch(f"{KEYS}/{id}", json=change, headers=ADMIN)
            for http, change in zip(https, changes, strict=True)
        )
    )
    assert {answer.status_code for answer in answers} == {200}
    shown = (await https[0].get(f"{KEYS}/{id}", headers=ADMIN)).json()
    for change in changes:
        assert change.items() <= shown.items()


async def test_while_redis_is_away_keys_seen_lately_count_and_no_other_is_called_wrong(
    https: list[httpx.AsyncClient], guarded: Cluster, mortal_redis: PrivateRedis
) -> None:
    # Given two made keys, of which the first replica has seen one
    _, seen = await make(https[0])
    _, unseen = await make(https[0])
    assert await listings(https[:1], seen) == [200]
    with frozen(mortal_redis):
        # Then that one still counts, also once it would have to be asked for again
        assert await listings(https[:1], seen) == [200]
        await asyncio.sleep(HOLDS_S)
        assert await listings(https[:1], seen) == [200]
        # And the file's key everywhere
        assert await listings(https, FILE_KEY) == [200, 200, 200]
        # And what may be a made key is not called wrong, while what cannot be one is
        for secret in (unseen, new_secret()):
            assert await listings(https[:1], secret) == [503]
        assert await listings(https[1:], seen) == [503, 503]
        assert await listings(https, "sk-wrong") == [401, 401, 401]
        # And nobody is told that a key has been made
        refused = await https[1].post(KEYS, json={}, headers=ADMIN)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "state_unavailable")
        assert refused.headers["retry-after"] == "1"
    # When it is back, all of them count
    for replica in guarded.replicas:
        await until(replica.is_ready, "ready")
    assert await listings(https, unseen) == [200, 200, 200]


async def test_made_keys_outlive_every_replica(
    https: list[httpx.AsyncClient], guarded: Cluster
) -> None:
    _, secret = await make(https[0])
    for replica in guarded.replicas:
        replica.kill()
        replica.start()
    for replica in guarded.replicas:
        await until(replica.is_ready, "ready")
    async with clients(guarded.replicas) as fresh:
        assert await statuses(fresh, secret) == [200, 200, 200]


async def test_secret_is_in_no_log_and_not_in_redis_and_its_digest_in_no_log(
    https: list[httpx.AsyncClient], guarded: Cluster, mortal_redis: PrivateRedis
) -> None:
    # Given a key that is made, used, changed, used in vain, revoked, and used during an outage
    id, secret = await make(https[0], id="canary")
    assert await statuses(https, secret) == [200, 200, 200]
    await https[1].patch(f"{KEYS}/{id}", json={"rpm": 60_000}, headers=ADMIN)
    await https[1].patch(f"{KEYS}/{id}", json={"rpm": 0, "user": secret}, headers=ADMIN)
    stored = everything_in(guarded.redis)
    with frozen(mortal_redis):
        await statuses(https, secret)
        await https[2].delete(f"{KEYS}/{id}", headers=ADMIN)
    for replica in guarded.replicas:
        await until(replica.is_ready, "ready")
    await https[2].delete(f"{KEYS}/{id}", headers=ADMIN)
    await until_all(https, secret, 401)

    # Then only its digest is kept, and only in Redis
    assert "id=canary" in stored
    assert sha256(secret) in stored
    stored += everything_in(guarded.redis)
    logged = "\n".join(replica.text() for replica in guarded.replicas)
    assert '"key":"canary"' in logged
    random = secret.removeprefix("sk-concord-")
    for text in (stored, logged):
        assert random not in text
    assert sha256(secret) not in logged
    assert "Traceback" not in logged
