"""Quotas: what providers say is left of them is asked once in a cluster, and put down.

A fetcher answers all usages that a provider reports. Most are read over HTTP, as `quota_fetchers`
in routing.yaml says; another kind can be registered by a provider's name. The provider `local`
counts here: its quota begins anew at midnight UTC.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from coordinator.current import Known
from gateway.config.quota_schema import QuotaFetcher, Usage
from gateway.config.routewise_schema import RoutewiseParams
from gateway.config.supplies import LOCAL_USAGE
from gateway.core.supply import LOCAL, QuotaState, Supply
from gateway.dispatch.failures import UNSENDABLE
from gateway.errors import StateUnavailable
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.keys import encode_id
from gateway.state.supply_store import SupplyStore
from gateway.telemetry.logs import event

DAY_MS = 86_400_000
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_MOST_BYTES = 1_000_000


class Reported(Struct, frozen=True, kw_only=True):
    """A usage as its provider reports it; a limit of `None` is the one that is configured."""

    usage_label: str
    unit: str
    used: float
    limit: float | None = None
    reset_at_ms: int = 0


class CannotTell(Exception):
    """Why a provider's answer says nothing: a short sentence without secrets."""


Fetcher = Callable[[], Awaitable[Sequence[Reported]]]
_registered: dict[str, Fetcher] = {}


def register_quota_fetcher(provider: str, fetcher: Fetcher) -> None:
    """Have a provider's usages told by this from now on, whatever routing.yaml says of it.

    It may raise `CannotTell`.
    """
    _registered[provider] = fetcher


class Quotas:
    """Asks providers under one epoch after the other."""

    def __init__(
        self,
        supplies: SupplyStore,
        coordinator_store: CoordinatorStore,
        transport: httpx.AsyncBaseTransport,
        known: Known,
    ) -> None:
        self._supplies = supplies
        self._store = coordinator_store
        self._transport = transport
        self._known = known
        self._told: dict[str, str] = {}
        """By pool, what was said last about why it is not known."""

    async def run(self, epoch: int) -> None:
        """Ask each provider at its pace, until there is another configuration. Raises `Fenced`."""
        replaced = self._known.replaced
        await self._known.look()
        pools: dict[str, list[tuple[Supply, float]]] = {}
        for supply, refresh_s in self._wanted():
            if supply.source:
                pools.setdefault(supply.source.provider, []).append((supply, refresh_s))
        async with asyncio.TaskGroup() as watches:
            tasks = [
                watches.create_task(self._watch(epoch, provider, wanted))
                for provider, wanted in pools.items()
            ]
            await replaced.wait()
            for task in tasks:
                task.cancel()

    def _wanted(self) -> list[tuple[Supply, float]]:
        """The quotas of the configuration, each once, and how often to ask after it."""
        found: dict[str, tuple[Supply, float]] = {}
        for model in self._known.config.models.values():
            params = model.router_params
            for route in model.routes:
                if route.supply and route.supply.source and isinstance(params, RoutewiseParams):
                    refresh_s = params.quota_snapshot_refresh_interval_sec
                    known = found.get(route.supply.pool)
                    least_s = min(refresh_s, known[1]) if known else refresh_s
                    found[route.supply.pool] = route.supply, least_s
        return list(found.values())

    async def _watch(
        self, epoch: int, provider: str, wanted: Sequence[tuple[Supply, float]]
    ) -> None:
        described = self._known.config.quota_fetchers.get(provider)
        refresh_s = min(refresh_s for _, refresh_s in wanted)
        if described and described.refresh_s and provider not in _registered:
            refresh_s = described.refresh_s
        while True:
            with contextlib.suppress(StateUnavailable):  # when Redis is back it is old news
                await self._ask(epoch, provider, described, [supply for supply, _ in wanted])
            await asyncio.sleep(refresh_s)

    async def _ask(
        self,
        epoch: int,
        provider: str,
        described: QuotaFetcher | None,
        supplies: Sequence[Supply],
    ) -> None:
        """Ask a provider once, and put down what it says of each quota."""
        asked_ms = self._known.now_ms()
        reports: Sequence[Reported] = ()
        why = ""
        try:
            if fetcher := _registered.get(provider):
                reports = await fetcher()
            elif described:
                reports = await fetch(self._transport, described)
            elif provider == LOCAL:
                reports, asked_ms = local_day(asked_ms)
            else:
                why = f"nobody asks {provider}"
        except CannotTell as error:
            why = str(error)
        for supply in supplies:
            await self._put_down(epoch, supply, reports, asked_ms, why)

    async def _put_down(
        self, epoch: int, supply: Supply, reports: Sequence[Reported], asked_ms: int, why: str
    ) -> None:
        source = supply.source
        matching = [
            one
            for one in reports
            if source and (one.usage_label, one.unit) == (source.usage_label, source.unit)
        ]
        if matching:
            limit = supply.limit if matching[0].limit is None else matching[0].limit
            found = QuotaState(
                used=matching[0].used, limit=limit, reset_at_ms=matching[0].reset_at_ms
            )
            await self._supplies.report(epoch, supply.pool, found, as_of_ms=asked_ms)
            if abs(limit - supply.limit) >= 1:
                why = f"its provider says that the limit is {limit:g}, not {supply.limit}"
        elif not why:
            listed = ", ".join(f"{one.usage_label}/{one.unit}" for one in reports) or "nothing"
            said = f"{source.usage_label}/{source.unit}" if source else ""
            why = f"no usage is named {said}: there is {listed}"
        state = "known" if matching else "unknown"
        if self._told.get(supply.pool, "") != why:
            if why:
                event("quota_doubtful", level=logging.WARNING, pool=supply.pool, said=why)
            else:
                event("quota_known", pool=supply.pool)
            self._told[supply.pool] = why
        words = f"state={state}" + (f" why={encode_id(why)}" if why else "")
        await self._store.publish(epoch, f"quota:{encode_id(supply.pool)}", words)


def local_day(now_ms: int) -> tuple[Sequence[Reported], int]:
    """The quota that is counted here, and since when: midnight UTC."""
    midnight_ms = now_ms - now_ms % DAY_MS
    label, unit = LOCAL_USAGE
    report = Reported(usage_label=label, unit=unit, used=0, reset_at_ms=midnight_ms + DAY_MS)
    return [report], midnight_ms


async def fetch(transport: httpx.AsyncBaseTransport, described: QuotaFetcher) -> list[Reported]:
    """Ask a provider over HTTP. Raises `CannotTell`."""
    request = httpx.Request(
        "GET",
        described.url,
        headers={"accept": "application/json", **described.headers},
        extensions={"timeout": dict.fromkeys(("connect", "pool", "read", "write"), None)},
    )
    try:
        async with asyncio.timeout(described.timeout_s):
            response = await transport.handle_async_request(request)
            try:
                body = await response.aread()
            finally:
                await response.aclose()
    except TimeoutError:
        raise CannotTell(f"no answer within {described.timeout_s:g} s") from None
    except (httpx.HTTPError, *UNSENDABLE) as error:
        raise CannotTell(f"no answer: {type(error).__name__}") from None
    if response.status_code != 200:
        raise CannotTell(f"an answer of {response.status_code}")
    try:
        tree = msgspec.json.decode(body[:_MOST_BYTES])
    except msgspec.DecodeError:
        raise CannotTell("an answer that is no JSON") from None
    return [_read(tree, usage) for usage in described.usages]


def _read(tree: object, usage: Usage) -> Reported:
    return Reported(
        usage_label=usage.usage_label,
        unit=usage.unit,
        used=_number(tree, usage.used),
        limit=None if usage.limit is None else _number(tree, usage.limit),
        reset_at_ms=0 if usage.reset_at is None else _date_ms(follow(tree, usage.reset_at)),
    )


def follow(tree: object, path: str) -> Any:
    """What stands at a path such as `data.items[0].used`. Raises `CannotTell`."""
    found: Any = tree
    for name, place in _STEP.findall(path):
        try:
            found = found[int(place)] if place else found[name]
        except (LookupError, TypeError):
            raise CannotTell(f"there is nothing at {path}") from None
    return found


def _number(tree: object, path: str) -> float:
    found = follow(tree, path)
    try:
        number = float(found)
    except (TypeError, ValueError, OverflowError):
        raise CannotTell(f"there is no number at {path}") from None
    if isinstance(found, bool) or not 0 <= number < float("inf"):
        raise CannotTell(f"there is no number of 0 or more at {path}")
    return number


def _date_ms(found: object) -> int:
    """Unix time in seconds or milliseconds, or ISO 8601; 0 for what is none."""
    if isinstance(found, str) and not found.isdigit():
        try:
            at = datetime.fromisoformat(found)
        except ValueError:
            return 0
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    try:
        number = float(found)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0
    return 0 if not 0 <= number < 1e15 else round(number if number > 1e11 else number * 1000)
