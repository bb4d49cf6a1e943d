"""Run scripts on Redis: one call, bounded in time, safe to repeat.

What can go wrong is sorted here: `StateUnavailable` when Redis is away or cannot do its work now,
`ScriptBug` when the fault is our own. A call is repeated at most once, and only where Redis has
surely not been too slow: every script may be repeated under the same id.
"""

from __future__ import annotations

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
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from gateway.errors import ScriptBug, StateUnavailable
from gateway.state.breaker import Breaker
from gateway.state.scripts import Script, sha1

_CANNOT_NOW = (
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "TRYAGAIN",
    "UNKILLABLE",
)
"""Error prefixes by which a server says that it cannot serve writes at present."""

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
        try:
            reply = await self._run_or_reconnect(script, *ordered)
        except (ConnectionError, TimeoutError, ReadOnlyError) as error:
            self._breaker.failed()
            raise StateUnavailable(may_have_happened=True) from error
        except RedisError as error:
            if str(error).startswith(_CANNOT_NOW):
                self._breaker.failed()
                raise StateUnavailable from error
            self._breaker.succeeded()
            raise ScriptBug(f"{name}: {error}") from error
        self._breaker.succeeded()
        return reply

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _run_or_reconnect(
        self, script: Script, keys: list[str], args: list[str | int]
    ) -> list[Any]:
        """Repeat a call once on a fresh connection when the old one was dead or to a replica."""
        try:
            return await self._run(script, keys, args)
        except (ConnectionError, ReadOnlyError):
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
            if str(error).startswith(_CANNOT_NOW):
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
    return Redis(connection_pool=pool)
