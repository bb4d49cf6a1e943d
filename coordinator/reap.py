"""Tidying up what no replica does.

A replica ends what has expired where it is busy itself: its models, its callers' limits, the gates
at which it waits, the pools that it draws from. What nobody sees to any more is found by going
through all keys, once per lease of claims. Nothing is forgotten while replicas serve by other files
than this coordinator.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from urllib.parse import unquote

from coordinator.current import Known
from coordinator.tally import Tally
from gateway.config.location import is_local
from gateway.config.result import Config
from gateway.core.gate import Gate
from gateway.gates.hold import engine_address
from gateway.gates.limiter import label_of
from gateway.state.caller_store import CallerStore
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.gate_store import GateStore
from gateway.state.keys import GATE_KINDS, Key, Keys
from gateway.state.redis import RedisRunner
from gateway.state.supply_store import SupplyStore
from gateway.telemetry.logs import Once, event

PAGE = 1_000
"""Keys that Redis looks at in one call, some hundreds of microseconds."""
TIDY_S = 60.0
"""How often models that are served are looked through."""
LIVE_KINDS = ("endpoints", "claims", "claimed", "reaped", "outcomes", "profile")
"""What is forgotten of a model; what operators have set stays until they take it back."""
TICKET_KINDS = ("gate_holders", "gate_line", "gate_aside")
_PER_CALL, _CALLS = 128, 10
_PIN = re.compile(r"location=(\S+)")


class Reaper:
    """Tidies up under one epoch after the other."""

    def __init__(
        self,
        runner: RedisRunner,
        keys: Keys,
        coordinator_store: CoordinatorStore,
        callers: CallerStore,
        gates: GateStore,
        *,
        supplies: SupplyStore,
        known: Known,
        tally: Tally,
        reaper: str,
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._store = coordinator_store
        self._callers = callers
        self._gates = gates
        self._supplies = supplies
        self._known = known
        self._tally = tally
        self._reaper = reaper
        self._strays: set[str] = set()
        """Ids of models that have state and are not configured, as of the last sweep."""
        self._tags: set[str] = set()
        """Of callers' limits that have reservations, likewise."""
        self._gate_tags: set[str] = set()
        """Of gates."""
        self._busy_gates: set[str] = set()
        """Of those with somebody in or in front of them."""
        self._pools: set[str] = set()
        """Ids of accounts' pools of which places are taken."""
        self._tidied_s: dict[str, float] = {}
        self._told = Once()

    def begin(self) -> None:
        """A new leader goes to every model at first: from then on older ones are kept out."""
        self._tidied_s.clear()

    async def tidy(self, epoch: int) -> None:
        """See to what nobody may see to, and once in a while to the models that are served.

        Raises `StateUnavailable` and `Fenced`.
        """
        for model_id in self._strays - self._known.config.models.keys():
            if await self._tidy(epoch, model_id, self._known.locations(None)):
                event("model_reaped", model=model_id)
        for tag in self._tags:
            self._tally.add("ended", await self._callers.reap(tag))
        for tag in self._busy_gates:
            await self._gates.reap(self._rule(tag))
        if self._known.locations(None) is not None:
            served = _gates_served(self._known.config)
            for tag in self._gate_tags:
                if _account_or_engine(tag) not in served:
                    await self._gates.forget(tag)
        for pool in self._pools:
            self._tally.add("ended", await self._supplies.reap(pool))
        now_s = time.monotonic()
        for model in self._known.config.models.values():
            if now_s - self._tidied_s.get(model.id, -TIDY_S) >= TIDY_S:
                await self._tidy(epoch, model.id, self._known.locations(model))
                self._tidied_s[model.id] = now_s

    async def sweep(self, epoch: int) -> None:
        """Go through all keys: drop pins to endpoints that are gone, and find what `tidy` sees to.

        Raises `StateUnavailable` and `Fenced`.
        """
        strays: set[str] = set()
        tags: set[str] = set()
        gates: set[str] = set()
        busy_gates: set[str] = set()
        pools: set[str] = set()
        cursor = ""
        while cursor != "0":
            page = await self._runner.ask(
                "SCAN", cursor or "0", "MATCH", f"{self._keys.namespace}:*", "COUNT", PAGE
            )
            if page is None:
                if self._told.first("scan"):
                    event("cannot_scan", level=logging.WARNING, said="an ACL forbids SCAN")
                return
            cursor, names = str(page[0]), page[1]
            pins: defaultdict[str, list[tuple[str, Key]]] = defaultdict(list)
            for name in names:
                match self._keys.read(name):
                    case Key(tag="m", kind="pin") as key:
                        pins[key.id].append((name, key))
                    case Key(tag="m", kind=kind, id=model_id) if kind in LIVE_KINDS:
                        strays.add(model_id)
                    case Key(tag="c", kind="reservations", id=tag):
                        tags.add(tag)
                    case Key(tag="u" | "e" as tag, kind=kind, id=id) if kind in GATE_KINDS:
                        gates.add(f"{tag}:{id}")
                        if kind in TICKET_KINDS:
                            busy_gates.add(f"{tag}:{id}")
                    case Key(tag="q", kind="places", id=pool):
                        pools.add(pool)
            for model_id, found in pins.items():
                await self._drop_stale_pins(epoch, model_id, found)
            await asyncio.sleep(0)
        self._strays = strays - self._known.config.models.keys()
        self._tags, self._pools = tags, pools
        self._gate_tags, self._busy_gates = gates, busy_gates

    def _rule(self, tag: str) -> Gate:
        """The rule by which places go on that the dead have left.

        Of an engine that is the limit which the last to enter has brought.
        """
        if tag.startswith("e:"):
            return Gate(tag=tag, limit=1)
        settings = self._known.config.settings.upstream_concurrency
        return Gate(tag=tag, limit=settings.initial, most=settings.max)

    async def _tidy(self, epoch: int, model_id: str, locations: Sequence[str] | None) -> int:
        """Tidy a model. Returns how many claims were ended."""
        ended = 0
        for _ in range(_CALLS):
            reply = await self._store.tidy_model(
                epoch,
                model_id,
                locations=locations,
                replicas=[*self._known.live, self._reaper],
                limit=_PER_CALL,
            )
            ended += reply.ended
            self._tally.add("forgotten", reply.forgotten)
            if reply.ended < _PER_CALL:
                break
        self._tally.add("ended", ended)
        return ended

    async def _drop_stale_pins(
        self, epoch: int, model_id: str, pins: Sequence[tuple[str, Key]]
    ) -> None:
        """Drop those of a model's pins that lead to no endpoint of it."""
        locations = self._known.locations(self._known.config.models.get(model_id))
        if locations is None:
            return
        engines = set(map(_engine_of, locations))
        texts = await self._runner.ask("MGET", *(name for name, _ in pins)) or []
        for (_, key), text in zip(pins, texts, strict=False):
            match = _PIN.match(text or "")
            location = unquote(match[1]) if match else None
            if location is not None and _engine_of(location) not in engines:
                dropped = await self._store.drop_stale_pin(
                    epoch, model_id, caller=key.owner, location=location
                )
                self._tally.add("unpinned", dropped)


def _engine_of(location: str) -> str:
    """A location without the name of its host, as `lua/tidy_model.lua` compares them."""
    return location.partition("@")[0]


def _gates_served(config: Config) -> set[str]:
    """The accounts and engines that routes lead to, as `_account_or_engine` names them."""
    accounts = {f"u:{label_of(route)}" for route in config.routes}
    local = (route.base_url for route in config.routes if is_local(route.base_url))
    return accounts.union(f"e:{engine_address(base_url)}" for base_url in local)


def _account_or_engine(tag: str) -> str:
    """What a gate stands before: an account without its key, an engine without its host's name."""
    return tag.rpartition(":")[0] if tag.startswith("u:") else tag.partition("@")[0]
