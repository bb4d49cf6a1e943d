"""The outbound limiter: a gate per provider label and upstream key, whose limit is learned.

The account behind a key is one, whatever models and routes lead to it and through how many
replicas. Engines on this host schedule their work themselves and have no such gate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache

from gateway.admission.secret import Secret
from gateway.config.location import is_local
from gateway.config.upstream_schema import UpstreamConcurrency
from gateway.core.digests import upstream_key_id
from gateway.core.gate import Gate
from gateway.core.route import Route
from gateway.errors import StateUnavailable
from gateway.gates.place import Place, UpstreamQueueWaitExpired, UpstreamSaturated
from gateway.gates.waiting import Waiting, nobody
from gateway.telemetry.logs import event

UNNAMED = "unknown"


class UpstreamLimiter:
    """Lets attempts pass to their upstream account, a few at a time, under one configuration."""

    def __init__(self, waiting: Waiting, secret: Secret, settings: UpstreamConcurrency) -> None:
        self._waiting = waiting
        self._secret = secret
        self._settings = settings

    async def enter(
        self,
        route: Route,
        upstream_key: str,
        deadline_s: float | None = None,
        *,
        queued: Callable[[], None] = nobody,
    ) -> Place | None:
        """Wait for a place with the account of a key; `None` where none is needed.

        That is at most `acquire_timeout`, nor beyond the deadline on the loop's clock; where that
        has passed a place is only taken if one is free. `queued` is told that it has to stand in
        line. Raises `UpstreamSaturated`, or `UpstreamQueueWaitExpired` when it was the deadline;
        and `StateUnavailable`.
        """
        gate = self.gate(route, upstream_key)
        if gate is None:
            return None
        wait_s, saturated = self._settings.acquire_timeout, UpstreamSaturated
        if deadline_s is not None:
            left_s = max(deadline_s - asyncio.get_running_loop().time(), 0.0)
            if left_s < wait_s:
                wait_s, saturated = left_s, UpstreamQueueWaitExpired
        place = await self._waiting.enter(gate, wait_s, queued=queued)
        if place is None:
            event("upstream_concurrency_saturated", level=logging.WARNING, **gate.about)
            raise saturated(gate)
        return place

    def leave(self, place: Place | None, status: int | None) -> None:
        """Give a place back, without waiting; more than once is the same as once.

        `status` is what the upstream has answered: 200 when all went well, 0 when nothing came,
        `None` when that was cut off.
        """
        if place is not None:
            self._waiting.leave(place, status or 0)

    def gate(self, route: Route, upstream_key: str) -> Gate | None:
        """The gate in front of a route's account; `None` where there is none.

        Raises `StateUnavailable` while what keys are digested with is not known yet.
        """
        settings = self._settings
        if not settings.enabled or _is_exempt(route.base_url):
            return None
        if self._secret.key is None:
            raise StateUnavailable
        return account_gate(
            label_of(route), _key_id(self._secret.key, upstream_key.strip()), settings
        )


def account_gate(label: str, key_id: str, settings: UpstreamConcurrency) -> Gate:
    """The gate of an account: a provider's label and the digest of a key."""
    return Gate(
        tag=f"u:{label}:{key_id}",
        limit=settings.initial,
        most=settings.max,
        interval=settings.success_interval,
        about={"provider": label, "key_fingerprint": key_id},
    )


def label_of(route: Route) -> str:
    """What the account of a route is known by."""
    return route.provider.strip() or UNNAMED


_is_exempt = lru_cache(maxsize=4096)(is_local)


_key_id = lru_cache(maxsize=4096)(upstream_key_id)
