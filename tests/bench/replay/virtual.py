"""The real scripts on a real Redis, at a time that the replay moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import redis

from gateway.state.keys import Keys
from gateway.state.scripts import folder, load_all
from gateway.state.server import PrivateRedis, find_server
from gateway.state.store import Store
from tests.bench.machine import Unfit

START_MS = 1_700_000_000_000
MODEL = "replayed"
# The time travels behind the last argument, so that it moves while the scripts' texts stay.
CLOCK = {"lib/time": "local function server_ms() return tonumber(ARGV[#ARGV]) end\n"}


class VirtualTime:
    """Runs scripts at `now_s` after the start."""

    def __init__(self, client: redis.Redis) -> None:
        self.now_s = 0.0
        self.calls = 0
        self._client = client
        self._scripts = load_all(folder(), CLOCK)
        takes_shebang = int(client.info("server")["redis_version"].partition(".")[0]) >= 7
        self._digests = {
            name: client.script_load(script.text(shebang=takes_shebang))
            for name, script in self._scripts.items()
        }

    async def run(
        self, name: str, keys: Mapping[str, str], args: Mapping[str, str | int]
    ) -> list[Any]:
        """Run a script by its names."""
        self.calls += 1
        names, ordered = self._scripts[name].order(keys, args)
        now_ms = START_MS + round(self.now_s * 1000)
        reply = self._client.evalsha(
            self._digests[name], len(names), *names, *map(str, ordered), str(now_ms)
        )
        return cast(list[Any], reply)


class VirtualStore:
    """An empty store under virtual time, and a way to look at it and to edit it by hand."""

    def __init__(self, client: redis.Redis) -> None:
        client.flushall()
        self.time = VirtualTime(client)
        self.store = Store(self.time, Keys("replay"))
        self._client = client
        self._endpoints = Keys("replay").model(MODEL)["endpoints"]

    def put(self, fields: Mapping[str, str]) -> None:
        """Edit what is known of endpoints, `<location>:<what>`."""
        self._client.hset(self._endpoints, mapping={**fields})

    def rates(self) -> dict[str, float]:
        """Location to the tokens/s that have been learned, where they have."""
        found = cast(dict[str, str], self._client.hgetall(self._endpoints))
        suffix = ":prefill_rate"
        return {
            name.removesuffix(suffix): float(value)
            for name, value in found.items()
            if name.endswith(suffix)
        }


@contextmanager
def private_redis() -> Iterator[redis.Redis]:
    """A client of a server of our own, which ends with the block."""
    binary = find_server()
    if binary is None:
        raise Unfit("needs a redis-server")
    with (
        PrivateRedis(binary) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
    ):
        yield client
