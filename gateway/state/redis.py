"""Run scripts on Redis: one call, bounded in time, safe to repeat.

What can go wrong is sorted here: `StateUnavailable` when Redis is away or cannot do its work now,
`ScriptBug` when the fault is our own. A call is repeated at most once, and only where Redis has
surely not been too slow: every script may be repeated under the same id.
"""

from __future__ import annotations

import asyncio
import builtins
import re
import time
from collections.abc import Awaitable, Mapping
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError,
    NoPermissionError,
    NoScriptError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from gateway.errors import ScriptBug, StateUnavailable
from gateway.state.breaker import Breaker
from gateway.state.scripts import Script, sha1

_CANNOT_NOW = {
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "READONLY",
    "TRYAGAIN",
    "UNKILLABLE",
}
"""Error codes by which a server says that it cannot serve writes at present."""

_INSIDE_SCRIPT = re.compile(r"^Error running script .*: -([A-Z]+) ")

EMBEDDED_URL = "embedded://"


class RedisRunner:
    """Runs scripts by name on one server.

    MUST be closed. A cancelled call leaves no connection with an unread reply behind: redis-py
    drops a connection whose read was interrupted.
    """

    def __init__(
        self,
        client: Redis,
        scripts: Mapping[str, Script],
        breaker: Breaker,
        *,
        takes_shebang: bool | None = None,
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._breaker = breaker
        self._shebang = takes_shebang
        self._may_load = True

    @property
    def is_available(self) -> bool:
        """Whether the last calls were answered."""
        return not self._breaker.is_open

    async def run(
        self, name: str, keys: Mapping[str, str], args: Mapping[str, str | int]
    ) -> list[Any]:
        """Run a script. Raises `StateUnavailable` or `ScriptBug`."""
        script = self._scripts[name]
        ordered = script.order(keys, args)
        if not self._breaker.allows():
            raise StateUnavailable
        before = cancellations()
        try:
            reply = await self._run_or_reconnect(script, *ordered)
        except RedisError as error:
            sorted_error = self._sort(name, error)
            if cancellations() > before:
                raise asyncio.CancelledError from error
            raise sorted_error from error
        self._breaker.succeeded()
        if cancellations() > before:
            raise asyncio.CancelledError
        return reply

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _sort(self, name: str, error: RedisError) -> StateUnavailable | ScriptBug:
        """Tell an outage from a fault of our own, and let the breaker know."""
        code = code_of(error)
        if code == "OOM":  # an answer at once, and what frees memory must not be kept away
            self._breaker.succeeded()
            return StateUnavailable()
        if is_pool_wait(error):  # says that we are busy, and nothing of Redis
            return StateUnavailable()
        if isinstance(error, ConnectionError | TimeoutError) or code in _CANNOT_NOW:
            self._breaker.failed()
            lost = isinstance(error, ConnectionError | TimeoutError) or code == "READONLY"
            return StateUnavailable(may_have_happened=lost)
        self._breaker.succeeded()
        return ScriptBug(f"{name}: {error}")

    async def _run_or_reconnect(
        self, script: Script, keys: list[str], args: list[str | int]
    ) -> list[Any]:
        """Repeat a call once on a fresh connection when the old one was dead or to a replica."""
        try:
            return await self._run(script, keys, args)
        except (ConnectionError, ResponseError) as error:
            lost = isinstance(error, ConnectionError) and not has_waited(error)
            if not lost and code_of(error) != "READONLY":
                raise
            await self._client.connection_pool.disconnect(inuse_connections=False)
            return await self._run(script, keys, args)

    async def _run(self, script: Script, keys: list[str], args: list[str | int]) -> list[Any]:
        text = script.text(shebang=await self._takes_shebang())
        digest = sha1(text)
        try:
            return await self._evalsha(digest, keys, args)
        except NoScriptError:
            pass
        if await self._load(text):
            try:
                return await self._evalsha(digest, keys, args)
            except NoScriptError:
                pass  # flushed again in between
        return await cast(
            Awaitable[list[Any]], self._client.eval(text, len(keys), *keys, *map(str, args))
        )

    async def _evalsha(self, digest: str, keys: list[str], args: list[str | int]) -> list[Any]:
        return await cast(
            Awaitable[list[Any]], self._client.evalsha(digest, len(keys), *keys, *map(str, args))
        )

    async def _load(self, text: str) -> bool:
        """Load a script. Some proxies and ACLs forbid it, and then EVAL has to do, from then on."""
        if not self._may_load:
            return False
        try:
            await self._client.script_load(text)
        except (ConnectionError, TimeoutError):
            raise
        except ResponseError as error:
            if code_of(error) in _CANNOT_NOW:
                raise
            self._may_load = False
        return self._may_load

    async def _takes_shebang(self) -> bool:
        """Whether the server knows `#!lua` (Redis 7). Asked once, unless the maker knew."""
        if self._shebang is None:
            try:
                about = await self._client.info("server")
            except NoPermissionError:
                self._shebang = True
            else:
                self._shebang = int(str(about["redis_version"]).partition(".")[0]) >= 7
        return self._shebang


def cancellations() -> int:
    """How often the current task has been told to stop.

    redis-py sends under `asyncio.wait_for`, and that of Python 3.11 loses a cancellation which
    comes as it ends: the caller would go on, whose client has long gone.
    """
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def code_of(error: RedisError) -> str:
    """The code of an error reply, such as `OOM`.

    redis-py cuts the codes that it knows off the text; servers before 7 wrap the error of a call
    inside a script into one of the script's.
    """
    text = str(error)
    if inside := _INSIDE_SCRIPT.match(text):
        return inside[1]
    return getattr(error, "status_code", None) or text.partition(" ")[0]


def has_waited(error: RedisError) -> bool:
    """Whether a timeout is behind an error. redis-py may wrap one: of a handshake, of its pool."""
    return isinstance(error.__cause__, TimeoutError | builtins.TimeoutError)


def is_pool_wait(error: RedisError) -> bool:
    """Whether no connection came free in time. redis-py has no class for that."""
    return isinstance(error, ConnectionError) and isinstance(error.__cause__, builtins.TimeoutError)


def connect(
    url: str, scripts: Mapping[str, Script], *, socket_timeout_s: float, max_connections: int = 256
) -> RedisRunner:
    """Make a runner for a Redis URL; it connects when first used, and again whenever needed."""
    return RedisRunner(
        make_client(url, socket_timeout_s=socket_timeout_s, max_connections=max_connections),
        scripts,
        Breaker(time.monotonic),
        takes_shebang=False if url == EMBEDDED_URL else None,
    )


def make_client(url: str, *, socket_timeout_s: float, max_connections: int = 8) -> Redis:
    """A client that never waits longer than the socket timeout and repeats nothing by itself.

    Raises `ValueError` when the URL is not a Redis URL.
    """
    if url == EMBEDDED_URL:
        from gateway.state.embedded import make_embedded

        return make_embedded()
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=socket_timeout_s,
        socket_timeout=socket_timeout_s,
        socket_connect_timeout=socket_timeout_s,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )
    return Redis.from_pool(pool)  # which closes it; `Redis(connection_pool=...)` would not
