"""A store in this process, by the real scripts, and the model `m` on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL, RedisRunner, connect
from gateway.state.scripts import folder, load_all
from gateway.state.store import Store

SCRIPTS = load_all(folder())


class Embedded(Store):
    """The embedded store, with a door for the test to look and to write by."""

    def __init__(self, runner: RedisRunner, keys: Keys) -> None:
        super().__init__(runner, keys)
        self.runner = runner
        self.keys = keys

    async def redis(self, *command: str) -> Any:
        """Run a plain command."""
        return await self.runner._link.call(*command)

    async def edit(self, model_id: str, **fields: str) -> None:
        """Set fields of a model's endpoints as an operator would, `location__what=text`."""
        key = self.keys.model(model_id)["endpoints"]
        for name, value in fields.items():
            await self.redis("HSET", key, name.replace("__", ":"), value)

    async def everything(self) -> dict[str, Any]:
        """All that this test's namespace holds."""
        found: dict[str, Any] = {}
        for key in await self.redis("KEYS", f"{self.keys.namespace}:*"):
            kind = await self.redis("TYPE", key)
            read = {
                "string": ("GET", key),
                "hash": ("HGETALL", key),
                "zset": ("ZRANGE", key, "0", "-1", "WITHSCORES"),
            }[kind]
            found[key] = await self.redis(*read)
        return found


@pytest.fixture
async def store(keys: Keys) -> AsyncIterator[Embedded]:
    runner = connect(EMBEDDED_URL, SCRIPTS, socket_timeout_s=5)
    yield Embedded(runner, keys)
    await runner.close()
