"""The configuration that the coordinator works by, and who else serves it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec import Struct

from gateway.config.result import Config, Loaded
from gateway.core.route import Model
from gateway.state.heartbeats import read_heartbeats
from gateway.state.policy import Policy
from gateway.state.store import Store


class Current(Struct, frozen=True, kw_only=True):
    """A configuration with what follows from it."""

    config: Config
    policy: Policy
    is_complete: bool
    """Whether it has every model and route of the files, none left out for want of a variable."""

    @classmethod
    def of(cls, loaded: Loaded, config: Config) -> Current:
        """What has been loaded, as `config`."""
        routes = sum(len(model.routes) for model in config.models.values())
        return cls(
            config=config,
            policy=Policy.of(config.settings),
            is_complete=(loaded.models, loaded.routes) == (len(config.models), routes),
        )


class Known:
    """What is known now: the configuration, and the replicas as of the last look.

    `live` has the ids of those that live.
    """

    def __init__(self, current: Current, store: Store) -> None:
        self.current = current
        self.replaced = asyncio.Event()
        """Set when this configuration is replaced by another, which has an event of its own."""
        self.live: Sequence[str] = ()
        self.live_replicas = 2
        """How many live; until that is known, not one alone."""
        self._store = store
        self.salt = ""
        """What ids are keyed with where there is no secret; empty before the first look."""
        self._digests: set[str] = set()
        self._ahead_ms = 0.0

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.current.config

    def replace(self, current: Current) -> None:
        """Work by another configuration from now on."""
        self.current = current
        self.replaced.set()
        self.replaced = asyncio.Event()

    async def look(self) -> None:
        """Learn which replicas live. Raises `StateUnavailable`."""
        ttl_ms = self.config.settings.state.replica_ttl_s * 1000
        reply = await self._store.replicas()
        self._ahead_ms = reply.now_ms - time.monotonic() * 1000
        self.salt = reply.salt
        live, _ = read_heartbeats(reply, ttl_ms=ttl_ms)
        # When the store was emptied the others are missing from it until they beat again.
        self.live_replicas = max(len(live), len(self.live))
        self.live = [one.id for one in live]
        self._digests = {one.config_digest for one in live}

    def now_ms(self) -> int:
        """What the clock of Redis shows, nearly, once there has been a look."""
        return round(time.monotonic() * 1000 + self._ahead_ms)

    def locations(self, model: Model | None) -> list[str] | None:
        """The locations that a model has, or with `None` one that is not configured.

        `None` when that is not certain: while replicas serve by other files, or none is there, or
        something in ours could not be read.
        """
        if not self.current.is_complete or self._digests != {self.config.digest}:
            return None
        return [route.location for route in model.routes] if model else []
