"""Health probes: GET /health of every local deployment, once in the whole cluster.

What they find is published. Where `probe_effect` is `circuit` it also moves the circuits of the
routes at that address. Only a 2xx is health; but a 3xx or 4xx comes from somebody who lives, such
as a proxy that wants a key or an engine without `/health`: it is shown, and moves no circuit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time

import httpx
from msgspec import Struct

from coordinator.current import Known
from coordinator.lease import Lease
from coordinator.tally import Tally
from gateway import __version__
from gateway.config.result import Config
from gateway.dispatch.failures import UNSENDABLE
from gateway.errors import StateUnavailable
from gateway.state.coordination import ProbeResult, probe_name, write_probe
from gateway.state.coordinator_store import CoordinatorStore, ProbeOutcome
from gateway.state.store import Store
from gateway.telemetry.logs import event

JITTER = 0.1
"""Of the interval, either way."""
FIRST_WITHIN_S = 1.0
"""Addresses that nobody has probed yet begin spread over this."""
_UNREACHED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)


class Target(Struct, frozen=True, kw_only=True):
    """An address to be probed."""

    address: str
    interval_s: float
    timeout_s: float
    moves: tuple[tuple[str, str], ...]
    """Model and location of the routes there, whose circuits follow; none where it is only told."""

    @property
    def url(self) -> str:
        """Where engines tell of their health: beside `/v1`, not below it."""
        return f"{self.address.removesuffix('/v1')}/health"


class Found(Struct, frozen=True, kw_only=True):
    """What one probe has found."""

    healthy: bool
    status: int | None = None
    error: str | None = None
    was_reached: bool = True
    """Whether there was a connection."""
    latency_ms: int

    @property
    def is_failure(self) -> bool:
        """Whether it says that the engine is not well, rather than nothing."""
        return not self.healthy and (self.status is None or self.status >= 500)


def targets_of(config: Config) -> list[Target]:
    """The addresses that a configuration has probed; none while `health_check` is 0."""
    settings = config.settings
    if not settings.health_check:
        return []
    moves: dict[str, dict[tuple[str, str], None]] = {}
    for deployment in settings.local_deployment:
        found = moves.setdefault(deployment.endpoint, {})
        for model in {config.names[name] for name in deployment.models if name in config.names}:
            for route in config.models[model].routes if model in config.models else ():
                if route.base_url == deployment.endpoint and settings.probe_effect == "circuit":
                    found[model, route.location] = None
    return [
        Target(
            address=address,
            interval_s=settings.health_check,
            timeout_s=settings.timeout or 1,
            moves=tuple(routes),
        )
        for address, routes in moves.items()
    ]


class Prober:
    """Probes under one epoch after the other."""

    def __init__(
        self,
        store: Store,
        coordinator_store: CoordinatorStore,
        transport: httpx.AsyncBaseTransport,
        known: Known,
        tally: Tally,
        *,
        lease: Lease,
    ) -> None:
        self._store = store
        self._coordinator_store = coordinator_store
        self._transport = transport
        self._known = known
        self._tally = tally
        self._lease = lease

    async def round(self, epoch: int) -> None:
        """Probe by the configuration of now, until there is another.

        It goes on from what an earlier leader has published, so that nothing is probed twice.
        Raises `StateUnavailable` and `Fenced`.
        """
        replaced, current = self._known.replaced, self._known.current
        targets = targets_of(current.config)
        before = (await self._store.coordinator()).probes()
        for address in before.keys() - {target.address for target in targets}:
            await self._coordinator_store.publish(epoch, probe_name(address), "")
        places = asyncio.Semaphore(current.config.settings.probe_concurrency)
        async with asyncio.TaskGroup() as watches:
            tasks = [
                watches.create_task(self._watch(epoch, one, places, before.get(one.address)))
                for one in targets
            ]
            await replaced.wait()
            for task in tasks:
                task.cancel()

    async def _watch(
        self, epoch: int, target: Target, places: asyncio.Semaphore, before: ProbeResult | None
    ) -> None:
        """Probe one address again and again."""
        failures = before.failures if before else 0
        if before:
            await asyncio.sleep(_pause_s(target) - before.age_ms / 1000)
        else:
            await asyncio.sleep(random.uniform(0, min(FIRST_WITHIN_S, target.interval_s)))
        while True:
            async with places:
                found = await self._ask(target) if self._lease.is_held else None
            if found is not None:
                failures = 0 if found.healthy else failures + int(found.is_failure)
                self._tally.add("probed")
                self._tally.add("failed", int(not found.healthy))
                with contextlib.suppress(StateUnavailable):  # when Redis is back it is old news
                    await self._tell(epoch, target, found, failures)
            await asyncio.sleep(_pause_s(target))

    async def _ask(self, target: Target) -> Found:
        """Probe an address once."""
        timeouts = {"connect": target.timeout_s / 2, "pool": None, "read": None, "write": None}
        request = httpx.Request(
            "GET",
            target.url,
            headers={"user-agent": f"concord/{__version__}", "accept": "*/*"},
            extensions={"timeout": timeouts},
        )
        started_s = time.monotonic()
        status: int | None = None
        error: str | None = None
        was_reached = True
        try:
            async with asyncio.timeout(target.timeout_s):
                response = await self._transport.handle_async_request(request)
                status = response.status_code
                await response.aclose()
        except TimeoutError:
            error = "timeout"
        except (httpx.HTTPError, *UNSENDABLE) as failed:
            error, was_reached = type(failed).__name__, not isinstance(failed, _UNREACHED)
        return Found(
            healthy=error is None and status is not None and 200 <= status < 300,
            status=status,
            error=error,
            was_reached=was_reached,
            latency_ms=round((time.monotonic() - started_s) * 1000),
        )

    async def _tell(self, epoch: int, target: Target, found: Found, failures: int) -> None:
        """Let what was found count where it is to, and publish it."""
        outcome = self._outcome(found, failures)
        if outcome is not None:
            for model_id, location in target.moves:
                await self._record(epoch, model_id, location, outcome)
        value = write_probe(
            healthy=found.healthy,
            status=found.status,
            error=found.error,
            latency_ms=found.latency_ms,
            failures=failures,
        )
        await self._coordinator_store.publish(epoch, probe_name(target.address), value)

    async def _record(
        self, epoch: int, model_id: str, location: str, outcome: ProbeOutcome
    ) -> None:
        circuit = await self._coordinator_store.record_probe(
            epoch,
            model_id,
            prober=self._lease.holder,
            location=location,
            outcome=outcome,
            live_replicas=self._known.live_replicas,
            policy=self._known.current.policy,
        )
        if circuit:
            event(
                f"circuit_{circuit}",
                level=logging.WARNING if circuit == "opened" else logging.INFO,
                endpoint=f"{model_id}:{location}",
                by="health probe",
            )

    def _outcome(self, found: Found, failures: int) -> ProbeOutcome | None:
        """What circuits are told of it; `None` for nothing, as while it has not failed enough."""
        if found.healthy:
            return "passed"
        if not found.is_failure:
            return None
        if not found.was_reached:
            return "connect"
        return "failed" if failures >= self._known.current.policy.failure_threshold else None


def _pause_s(target: Target) -> float:
    return target.interval_s * random.uniform(1 - JITTER, 1 + JITTER)
