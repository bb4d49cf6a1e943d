"""Run scripts on Redis: one call, bounded in time, safe to repeat.

What can go wrong is sorted here: `StateUnavailable` when Redis is away or cannot do its work now,
`ScriptBug` when the fault is our own. A call is repeated at most once, and only where Redis has
surely not been too slow: every script may be repeated under the same id.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
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
from gateway.state.grants import Channels, Grants, NoGrants, Subscription
from gateway.state.link import Argument, Link, SharedLink, code_of
from gateway.state.scripts import Script, sha1
from gateway.telemetry.logs import event

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

_NOT_US = {"NOAUTH", "NOPERM", "WRONGPASS"}
"""Those by which it says that it does not serve us."""

_UNAUTHENTICATED = "Protocol error: unauthenticated"
"""How it says that to a command of more than ten arguments."""

EMBEDDED_URL = "embedded://"


class _Loaded(Struct, frozen=True):
    """A script as this server takes it."""

    text: str
    digest: str


class RedisRunner:
    """Runs scripts by name on one server. MUST be closed."""

    def __init__(
        self,
        link: Link,
        scripts: Mapping[str, Script],
        breaker: Breaker,
        *,
        takes_shebang: bool | None = None,
    ) -> None:
        self._link = link
        self._scripts = scripts
        self._breaker = breaker
        self._shebang = takes_shebang
        self._may_load = True
        self._has_answered = False
        self._is_out_of_memory = False
        self._loaded: dict[str, _Loaded] = {}
        self._names: dict[str, str] = {}

    @property
    def is_available(self) -> bool:
        """Whether Redis has been reached, and has done the last calls' work."""
        return self._has_answered and not self._breaker.is_open and not self._is_out_of_memory

    async def run(
        self, name: str, keys: Mapping[str, str], args: Mapping[str, str | int]
    ) -> list[Any]:
        """Run a script. Raises `StateUnavailable` or `ScriptBug`."""
        ordered_keys, ordered_args = self._scripts[name].order(keys, args)
        number = self._breaker.begin()
        if number is None:
            raise StateUnavailable
        command = (len(ordered_keys), *ordered_keys, *ordered_args)
        try:
            reply = await self._run_or_reconnect(name, command)
        except RedisError as error:
            raise self._sort(name, number, error) from error
        self._answered()
        if "allow-oom" not in self._scripts[name].shebang:
            self._is_out_of_memory = False
        return reply

    async def info(self) -> dict[str, str]:
        """What the server says of itself; empty where it does not, such as the embedded store.

        Raises `StateUnavailable`.
        """
        lines = (line.partition(":") for line in str(await self.ask("INFO") or "").splitlines())
        return {name: value for name, colon, value in lines if colon}

    async def ask(self, *command: Argument) -> Any:
        """Put a question to the server that no script can; `None` where it may not tell us.

        Raises `StateUnavailable`. The command MUST write nothing.
        """
        number = self._breaker.begin()
        if number is None:
            raise StateUnavailable
        try:
            answer = await self._link.call(*command)
        except RedisError as error:
            if not isinstance(error, ResponseError) or code_of(error) in _CANNOT_NOW:
                raise self._sort(str(command[0]), number, error) from error
            answer = None
        self._answered()
        return answer

    def script_of(self, digest: str) -> str | None:
        """Name the script that Redis knows by a digest; `None` for one of another release."""
        if not self._names:
            for name, script in self._scripts.items():
                for shebang in (True, False):
                    self._names[sha1(script.text(shebang=shebang))] = name
        return self._names.get(digest)

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    def _sort(self, name: str, number: int, error: RedisError) -> StateUnavailable | ScriptBug:
        """Tell an outage from a fault of our own, and let the breaker know."""
        code = code_of(error)
        if code == "OOM":  # an answer at once, and what frees memory must not be kept away
            self._answered()
            if not self._is_out_of_memory:
                event("state_out_of_memory", level=logging.ERROR, error=str(error))
            self._is_out_of_memory = True
            return StateUnavailable()
        lost = isinstance(error, ConnectionError | TimeoutError)
        turned_away = code in _NOT_US or _UNAUTHENTICATED in str(error)
        if lost or turned_away or code in _CANNOT_NOW:
            was_open = self._breaker.is_open
            self._breaker.failed(number)
            is_first = number == 1 and not self._has_answered
            if is_first or (self._breaker.is_open and not was_open):
                event(
                    "state_unavailable",
                    level=logging.ERROR,
                    error=f"{type(error).__name__}: {error}",
                )
            return StateUnavailable(may_have_happened=lost and code not in _CANNOT_NOW)
        self._answered()
        return ScriptBug(f"{name}: {error}")

    def _answered(self) -> None:
        if self._breaker.is_open:
            event("state_recovered")
        self._has_answered = True
        self._breaker.succeeded()

    async def _run_or_reconnect(self, name: str, command: tuple[Argument, ...]) -> list[Any]:
        """Repeat a call once on a fresh connection when the old one was dead or to a replica."""
        try:
            return await self._run(name, command)
        except (ConnectionError, ResponseError) as error:
            if not isinstance(error, ConnectionError) and code_of(error) != "READONLY":
                raise
            return await self._run(name, command)

    async def _run(self, name: str, command: tuple[Argument, ...]) -> list[Any]:
        script = self._loaded.get(name) or await self._prepare(name)
        for may_load in (True, False):
            try:
                return cast(list[Any], await self._link.call("EVALSHA", script.digest, *command))
            except NoScriptError:
                script = await self._prepare(name)  # perhaps another server, of another version
                if not (may_load and await self._load(script.text)):
                    break  # forbidden, or flushed again in between
        return cast(list[Any], await self._link.call("EVAL", script.text, *command))

    async def _prepare(self, name: str) -> _Loaded:
        text = self._scripts[name].text(shebang=await self._takes_shebang())
        script = self._loaded[name] = _Loaded(text, sha1(text))
        return script

    async def _load(self, text: str) -> bool:
        """Load a script. Some proxies and ACLs forbid it, and then EVAL has to do, from then on."""
        if not self._may_load:
            return False
        try:
            await self._link.call("SCRIPT", "LOAD", text)
        except ResponseError as error:
            if code_of(error) in _CANNOT_NOW:
                raise
            self._may_load = False
        return self._may_load

    async def _takes_shebang(self) -> bool:
        """Whether the server knows `#!lua` (Redis 7). Asked, unless the maker knew."""
        if self._shebang is not None:
            return self._shebang
        try:
            about = str(await self._link.call("INFO", "server"))
        except NoPermissionError:
            return True
        version = re.search(r"redis_version:(\d+)", about)
        return version is None or int(version[1]) >= 7


def connect(url: str, scripts: Mapping[str, Script], *, socket_timeout_s: float) -> RedisRunner:
    """Make a runner for a Redis URL; it connects when first used, and again whenever needed.

    Raises `ValueError` when the URL is not a Redis URL.
    """
    return RedisRunner(
        make_link(url, timeout_s=socket_timeout_s),
        scripts,
        Breaker(time.monotonic),
        takes_shebang=False if url == EMBEDDED_URL else None,
    )


def judge_redis_url(url: str) -> None:
    """Raise `ValueError`, saying why, when a URL cannot be used. Nothing is connected to."""
    make_link(url, timeout_s=1.0)


def make_link(url: str, *, timeout_s: float) -> Link:
    """A link that waits no longer than the timeout and repeats nothing by itself.

    Raises `ValueError` when the URL is not a Redis URL.
    """
    if url == EMBEDDED_URL:
        from gateway.state.embedded import EmbeddedLink

        return EmbeddedLink()
    return SharedLink(_connections(url, timeout_s), timeout_s=timeout_s)


def listen(url: str, channels: Channels, *, replica_id: str, timeout_s: float) -> Grants:
    """Where a replica hears of its grants.

    Raises `ValueError` when the URL is not a Redis URL.
    """
    if url == EMBEDDED_URL:
        return NoGrants()
    make = _connections(url, timeout_s)
    return Subscription(make, channels, replica_id=replica_id, timeout_s=timeout_s)


def _connections(url: str, timeout_s: float) -> Callable[[], AbstractConnection]:
    """What makes connections as the URL says: the pool only reads it.

    RESP 2, since scripts answer the same in both and pushed messages have no place among replies.
    """
    try:
        pool = ConnectionPool.from_url(url, protocol=2, socket_timeout=timeout_s)
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, RedisError):
        # What redis-py says may quote the password.
        raise ValueError(
            "the Redis URL cannot be used: it must start with redis://, rediss:// or unix://, have "
            "a port that is a number, no unescaped / or @ in its password, and options that "
            "redis-py knows"
        ) from None
    return pool.make_connection
