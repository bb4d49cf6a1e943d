"""A conversation stays on one endpoint, whichever replica its turns come to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import Struct, field

from tests.cluster.harness import ROOT, SECRET, Cluster, Engine, Replica
from tests.cluster.load import Answer, ask, clients, idle, until
from tests.cluster.test_secrets import everything_in

SESSIONS, TURNS, TURNS_AFTER = 200, 20, 6
TALKERS = 12
"""How many turns are under way at a time."""
FAST = {"ttft_ms": 0, "tokens_per_s": 0, "prefill_tokens_per_s": 0, "output_tokens": 1}
ALICE = {"id": "canary-of-a-caller", "key": "sk-canary-of-alice"}
BOB = {"id": "bob", "key": "sk-canary-of-bob"}
SESSION, PROMPT = "canary-of-a-session", "canary-of-a-prompt"
PINS = "gw:{m:m}:pin:*"


def described(engines: list[Engine]) -> list[dict[str, Any]]:
    routes = [{"kind": "vllm", "base_url": engine.url} for engine in engines]
    return [{"id": "m", "name": "M", "provider": "vllm", "route": routes, "aliases": ["alias"]}]


@pytest.fixture(scope="module")
def pinning(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("affinity"),
        module_redis,
        engines={"engine-a": FAST, "engine-b": FAST, "engine-c": FAST},
        models=described,
        keys=[ALICE, BOB],
        routing={
            "affinity": {},
            "circuit": {"cooldown_seconds": 600},
            # On two cores the processes take turns, and a turn can last long.
            "state": {"socket_timeout_ms": 1000},
        },
        nginx=True,
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(pinning: Cluster) -> Cluster:
    pinning.reset()
    return pinning


class Conversation(Struct):
    """A session and what it has been answered so far."""

    session: str
    answers: list[Answer] = field(default_factory=list)

    async def turn(self, http: httpx.AsyncClient) -> None:
        """Go on."""
        self.answers.append(await ask(http, key=ALICE["key"], session=self.session))

    def endpoints(self, start: int = 0) -> set[str | None]:
        """Who has answered since a turn."""
        return {answer.endpoint for answer in self.answers[start:]}

    @property
    def home(self) -> str | None:
        """Who has answered last."""
        return self.answers[-1].endpoint


@contextlib.asynccontextmanager
async def talkers(url: str) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Clients with a connection each."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=30))
            for _ in range(TALKERS)
        ]


async def talk(
    https: list[httpx.AsyncClient], conversations: list[Conversation], turns: int
) -> None:
    """Let all conversations go on at once, the turns of each one after the other."""

    async def some(http: httpx.AsyncClient, mine: list[Conversation]) -> None:
        for _ in range(turns):
            for conversation in mine:
                await conversation.turn(http)

    await asyncio.gather(*(some(http, conversations[n::TALKERS]) for n, http in enumerate(https)))


async def test_all_turns_of_a_session_meet_one_endpoint_and_once_that_has_died_another_one(
    cluster: Cluster,
) -> None:
    conversations = [Conversation(f"session-{n}") for n in range(SESSIONS)]
    async with talkers(cluster.url) as https:
        # When 200 sessions have 20 turns each, by way of three replicas
        await talk(https, conversations, TURNS)

        # Then each has one endpoint, and all endpoints have some
        assert {a.status for one in conversations for a in one.answers} == {200}
        assert [one.session for one in conversations if len(one.endpoints()) > 1] == []
        homes = {one.session: one.home for one in conversations}
        assert set(homes.values()) == {f"m:{engine.location}" for engine in cluster.engines}
        assert len(cluster.redis.keys(PINS)) == SESSIONS
        for replica in cluster.replicas:
            assert len(replica.events("request")) > SESSIONS * TURNS / 4

        # When one of them dies
        dying = cluster.engines[0]
        dead = f"m:{dying.location}"
        dying.kill()
        await talk(https, conversations, TURNS_AFTER)

    # Then nobody has noticed, and who lived elsewhere has stayed there
    assert {a.status for one in conversations for a in one.answers} == {200}
    moved = [one for one in conversations if homes[one.session] == dead]
    for one in conversations:
        if one not in moved:
            assert one.endpoints(TURNS) == {homes[one.session]}
    # And the others have been given a new home, once, and have kept it since they first got there
    for one in moved:
        assert dead not in one.endpoints(TURNS)
        settled = [a.endpoint for a in one.answers[TURNS:] if a.attempts == 1]
        assert settled[1:]
        assert len(set(settled)) == 1
    # And few of them had to find out by themselves
    by_failover = [one for one in moved if any(a.attempts > 1 for a in one.answers)]
    assert 3 <= len(by_failover) < len(moved)


async def test_two_first_requests_of_a_session_at_once_get_one_endpoint(cluster: Cluster) -> None:
    async with clients(cluster.replicas) as https:
        # When the first two requests of a session come to two replicas at once, for many sessions
        for start in range(0, SESSIONS, 20):
            sessions = [f"pair-{n}" for n in range(start, start + 20)]
            answers = await asyncio.gather(
                *(
                    ask(https[(n + place) % 3], key=ALICE["key"], session=session)
                    for n, session in enumerate(sessions)
                    for place in (0, 1)
                )
            )
            # Then both meet the same endpoint
            assert {a.status for a in answers} == {200}
            first, second = answers[::2], answers[1::2]
            assert [a.endpoint for a in first] == [a.endpoint for a in second]
    # And there is one pin for each session, and pins to all endpoints
    pins = cluster.redis.mget(cluster.redis.keys(PINS))
    assert len(pins) == SESSIONS
    for engine in cluster.engines:
        assert any(f"location={engine.location} " in str(pin) for pin in pins)


async def test_a_session_belongs_to_its_caller(cluster: Cluster) -> None:
    # When two callers have sessions that they call the same
    async with clients(cluster.replicas) as https:
        homes = [
            [(await ask(http, key=key, session=f"session-{n}")).endpoint for n in range(40)]
            for key in (ALICE["key"], BOB["key"])
            for http in https
        ]
    # Then each caller has its own, the same through all replicas
    of_alice, of_bob = homes[:3], homes[3:]
    assert of_alice == [of_alice[0]] * 3
    assert of_bob == [of_bob[0]] * 3
    assert of_alice[0] != of_bob[0]
    assert len(cluster.redis.keys(PINS)) == 80


async def test_an_alias_shares_the_pins_of_its_model(cluster: Cluster) -> None:
    # When sessions begin under the alias, and go on under the model's own name
    async with clients(cluster.replicas) as https:
        key = ALICE["key"]
        for n in range(40):
            begun = await ask(https[0], key=key, session=f"session-{n}", model="alias")
            gone_on = await ask(https[1], key=key, session=f"session-{n}", model="m")
            # Then they stay where they are
            assert begun.status == 200
            assert begun.endpoint == gone_on.endpoint
    assert len(cluster.redis.keys(PINS)) == 40
    assert not cluster.redis.keys("gw:{m:alias}:*")


def explain(cluster: Cluster, *options: str) -> Any:
    """Ask the command, on Redis and without a secret."""
    command = [sys.executable, "-m", "gateway", "explain", "m", "--json", *options]
    where = ["--config", str(cluster.config), "--redis", cluster.redis_url]
    environ = {name: value for name, value in os.environ.items() if name != "CONCORD_SECRET"}
    done = subprocess.run(
        [*command, *where], env=environ, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


async def test_replicas_without_a_secret_agree_on_a_salt_and_so_on_pins(
    cluster: Cluster, tmp_path: Path
) -> None:
    # Given two replicas that have been given no secret
    places = (tmp_path, cluster.config, cluster.redis_url)
    strangers = [Replica(f"stranger-{n}", *places, secret="") for n in (1, 2)]
    for replica in strangers:
        replica.start()
    try:
        for replica in strangers:
            await until(replica.is_ready, "ready")
        # When sessions go from one to the other
        async with clients(strangers) as https:
            homes = [
                [
                    (await ask(http, key=ALICE["key"], session=f"session-{n}")).endpoint
                    for n in range(40)
                ]
                for http in https
            ]
        # Then they stay where they are
        assert homes[0] == homes[1]
        assert len(cluster.redis.keys(PINS)) == 40
        # And a command finds their pins, too
        told = explain(cluster, "--caller", ALICE["id"], "--session", "session-7")
        assert (told["pin"], told["drawn"]) == ("kept", homes[0][7])
    finally:
        for replica in strangers:
            replica.kill()


async def test_no_session_caller_or_prompt_shows_in_redis_and_no_session_or_prompt_in_a_log(
    cluster: Cluster,
) -> None:
    # When a caller's session, told in each of the ways there are, succeeds and fails
    key = ALICE["key"]
    async with clients(cluster.replicas) as https:
        for stream in (False, True):
            for http in https:
                await ask(http, PROMPT, key=key, session=SESSION, stream=stream)
                await ask(http, PROMPT, key=key, prompt_cache_key=SESSION, stream=stream)
                await ask(http, PROMPT, key=key, metadata={"user_id": SESSION}, stream=stream)
                await ask(http, PROMPT, key=SESSION, session=SESSION, stream=stream)
        for engine in cluster.engines:
            engine.fault(status=503)
        await ask(https[0], PROMPT, key=key, session=SESSION)
        stored = everything_in(cluster.redis)  # pins are dropped by the failures
        for engine in cluster.engines:
            engine.heal()
        cluster.redis.delete("gw:{m:m}:endpoints")
        await ask(https[0], PROMPT, key=key, session=SESSION)
    await idle(cluster)
    stored += everything_in(cluster.redis)

    # Then it is kept which endpoint they are on and what that has cached, and nothing of them
    assert ":pin:" in stored
    assert ":hint:" in stored
    for canary in (SESSION, PROMPT, SECRET, ALICE["id"], ALICE["key"]):
        assert canary not in stored
    # And the log, which may name callers, tells nothing of what they say
    logged = "\n".join(replica.text() for replica in cluster.replicas)
    assert ALICE["id"] in logged
    for canary in (SESSION, PROMPT, SECRET, ALICE["key"]):
        assert canary not in logged
