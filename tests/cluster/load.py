"""Clients of a cluster: single requests and streams, load, and an eye on the state meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Self

import httpx
import redis
from msgspec import Struct

from tests.cluster.harness import START_S, Cluster, Replica, body


class Answer(Struct, kw_only=True):
    """How a request has gone for its client, so far."""

    status: int = 0
    code: str | None = None
    """The error's code, whether it came with the status or as an event."""
    message: str = ""
    endpoint: str | None = None
    attempts: int = 0
    engine: str | None = None
    """Who has answered, by its own account."""
    retry_after: int | None = None
    tokens: int = 0
    is_whole: bool = False
    """The answer has come to its proper end."""
    began_s: float = 0.0
    """When it was asked for, by the clock on the wall, which dates the logs, too."""
    took_s: float = 0.0


@contextlib.asynccontextmanager
async def clients(replicas: Sequence[Replica]) -> AsyncIterator[list[httpx.AsyncClient]]:
    """One client per replica."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=replica.url, timeout=30, limits=limits)
            )
            for replica in replicas
        ]


async def ask(
    http: httpx.AsyncClient,
    content: str = "hi",
    *,
    pin: str | None = None,
    key: str | None = None,
    session: str | None = None,
    into: Answer | None = None,
    **fields: Any,
) -> Answer:
    """Send a chat request and follow its answer to the end; `into` shows how far it has come."""
    answer = into or Answer()
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if pin:
        headers["x-route-pin"] = pin
    if session:
        headers["x-concord-session"] = session
    answer.began_s, started_s = time.time(), time.monotonic()
    request = http.stream(
        "POST", "/v1/chat/completions", json=body(content, **fields), headers=headers
    )
    async with request as response:
        answer.status = response.status_code
        answer.endpoint = response.headers.get("x-concord-endpoint")
        answer.attempts = int(response.headers.get("x-concord-attempts", 0))
        if "retry-after" in response.headers:
            answer.retry_after = int(response.headers["retry-after"])
        if response.headers["content-type"].startswith("text/event-stream"):
            async for line in response.aiter_lines():
                _read_event(line, answer)
        else:
            _read_whole(json.loads(await response.aread()), answer)
    answer.took_s = time.monotonic() - started_s
    return answer


def _read_event(line: str, answer: Answer) -> None:
    if line == "data: [DONE]":
        answer.is_whole = True
    elif line.startswith("data: "):
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            answer.code, answer.message = event["error"]["code"], event["error"]["message"]
            return
        answer.engine = event["system_fingerprint"]
        if any(choice["delta"].get("content") for choice in event["choices"]):
            answer.tokens += 1


def _read_whole(whole: dict[str, Any], answer: Answer) -> None:
    if "error" in whole:
        answer.code, answer.message = whole["error"]["code"], whole["error"]["message"]
    else:
        answer.engine, answer.is_whole = whole["system_fingerprint"], True


class Streams:
    """Open requests of one replica, streams unless told, and how far they have come."""

    def __init__(self, http: httpx.AsyncClient, count: int, **fields: Any) -> None:
        self.answers = [Answer() for _ in range(count)]
        self.tasks = [
            asyncio.create_task(ask(http, into=answer, **{"stream": True, **fields}))
            for answer in self.answers
        ]

    def all_flow(self) -> bool:
        """Whether each has had some output."""
        return all(answer.tokens for answer in self.answers)

    async def ended(self) -> list[Answer]:
        """Wait for all; those whose connection broke count as not whole."""
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, httpx.TransportError):
                raise outcome
        return self.answers

    async def hang_up(self) -> None:
        """Close the connection of those that have not ended."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Load:
    """Requests without pause, through all clients alike, until stopped.

    One that gets no answer at all counts as one of status 0.
    """

    def __init__(
        self, https: Sequence[httpx.AsyncClient], *, workers_each: int = 4, **fields: Any
    ) -> None:
        self.answers: list[Answer] = []
        self._stopping = False
        self._workers = [
            asyncio.create_task(self._work(http, fields))
            for http in https
            for _ in range(workers_each)
        ]

    async def reach(self, count: int) -> None:
        """Wait until so many more requests have been answered."""
        goal = len(self.answers) + count
        await until(lambda: len(self.answers) >= goal, f"{count} more answers")

    async def stop(self) -> list[Answer]:
        """Let the last requests end; returns all answers."""
        self._stopping = True
        await asyncio.gather(*self._workers)
        return self.answers

    async def _work(self, http: httpx.AsyncClient, fields: dict[str, Any]) -> None:
        while not self._stopping and not http.is_closed:
            try:
                self.answers.append(await ask(http, **fields))
            except httpx.TransportError as error:
                self.answers.append(Answer(code=type(error).__name__))


async def until(ready: Callable[[], Any], what: str, timeout_s: float = START_S) -> Any:
    """Poll until something holds while the test's own clients go on; fails loudly."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if answer := ready():
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError(f"{what} did not come true within {timeout_s} s")


async def idle(cluster: Cluster) -> None:
    """Wait until nothing is left, in Redis and in the engines."""
    await until(cluster.is_idle, "an idle model", 10)
    await until(lambda: all(e.counters()["active"] == 0 for e in cluster.engines), "idle engines")


def read_by(replica: Replica) -> list[dict[str, Any]]:
    """What has come of each of its readings of its configuration, oldest first."""
    outcomes = [*replica.events("config_reloaded"), *replica.events("config_reload_failed")]
    return sorted(outcomes, key=lambda line: line["ts"])


async def reload(replicas: Sequence[Replica]) -> list[dict[str, Any]]:
    """Have replicas read their configuration anew; returns what each says came of it."""
    before = [len(read_by(replica)) for replica in replicas]
    for replica in replicas:
        replica.signal(signal.SIGHUP)

    def have_read() -> bool:
        return all(len(read_by(r)) > n for r, n in zip(replicas, before, strict=True))

    await until(have_read, "all have read their files")
    return [read_by(replica)[-1] for replica in replicas]


class Watch:
    """Looks at a model's state all the while, from a thread of its own.

    Whenever it looks, the places in flight must be those of the claims: nothing counted twice,
    nothing forgotten, nothing negative. It misses nothing for long, and sleeps through an outage.
    """

    def __init__(self, cluster: Cluster, model: str = "m") -> None:
        self.looks = 0
        self.faults: list[str] = []
        self.most_inflight = 0
        self._tag = f"gw:{{m:{model}}}"
        self._redis: redis.Redis = redis.Redis.from_url(
            cluster.redis_url, decode_responses=True, socket_timeout=0.5
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._redis.close()
        if kind is None:
            assert not self.faults, self.faults[:5]
            assert self.looks > 10

    def _run(self) -> None:
        while not self._stopping.wait(0.01):
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                self._look()

    def _look(self) -> None:
        with self._redis.pipeline(transaction=True) as pipe:
            row, claims, claimed = (
                pipe.hgetall(f"{self._tag}:endpoints")
                .zcard(f"{self._tag}:claims")
                .hlen(f"{self._tag}:claimed")
                .execute()
            )
        self.looks += 1
        counts = [int(text) for name, text in row.items() if name.endswith(":inflight")]
        self.most_inflight = max(self.most_inflight, sum(counts))
        if min(counts, default=0) < 0 or not sum(counts) == claims == claimed:
            self.faults.append(f"in flight {counts}, {claims} claims, {claimed} claimed")
