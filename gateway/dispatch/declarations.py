"""What operators have declared of upstream keys at run time, as this replica knows it.

Known by provider, and read again every few seconds, so that a route with one key for everybody
learns when that changes. Who takes a key out of several is told at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from msgspec import Struct

from gateway.admission.secret import Secret
from gateway.core.route import UpstreamKey
from gateway.dispatch.sealing import CannotOpen, Seal
from gateway.errors import ScriptBug, StateUnavailable
from gateway.state.pool_store import AddedKey, Declared, PoolStore
from gateway.telemetry.logs import Once, event

WATCH_S = 2.0


class ProviderKeys(Struct, frozen=True, kw_only=True):
    """What is declared of one provider's keys."""

    declared: Declared
    added: tuple[UpstreamKey, ...]
    """The keys that were added, decrypted, with the role that each says itself."""

    @property
    def epoch(self) -> int:
        """The number of this declaration."""
        return self.declared.epoch

    @property
    def min_roles(self) -> Mapping[str, str]:
        """Digest to role, of keys that are kept for it wherever they come from."""
        return self.declared.min_roles


class Declarations:
    """Of all providers that have been asked for. Lives as long as the replica."""

    def __init__(self, store: PoolStore, seal: Seal | None, secret: Secret) -> None:
        """Without a seal no key that was added can be read."""
        self._store = store
        self._seal = seal
        self._secret = secret
        self._known: dict[str, ProviderKeys] = {}
        self._told = Once()

    def of(self, provider: str) -> ProviderKeys | None:
        """What is known, without asking; `None` before the first reading."""
        return self._known.get(provider)

    async def read(self, provider: str) -> ProviderKeys:
        """Read it anew. Raises `StateUnavailable`."""
        known = self._known.get(provider)
        declared = await self._store.declared(provider, known.declared if known else None)
        if known is None or declared is not known.declared:
            added = tuple(key for one in declared.added if (key := self._open(provider, one)))
            known = self._known[provider] = ProviderKeys(declared=declared, added=added)
            self._tell_of_void_tiers(provider, declared)
        return known

    async def watch(self) -> None:
        """Read all of it again and again, until cancelled."""
        while True:
            for provider in list(self._known):
                try:
                    await self.read(provider)
                except StateUnavailable:
                    break  # the next round tries again
                except ScriptBug as error:
                    event("script_bug", level=logging.ERROR, error=str(error))
            await asyncio.sleep(WATCH_S)

    def _open(self, provider: str, added: AddedKey) -> UpstreamKey | None:
        try:
            if self._seal is None:
                raise CannotOpen(added.id)
            return UpstreamKey(self._seal.open(added.sealed, added.id), added.min_role)
        except CannotOpen:
            if self._told.first(added.id):
                fields = {"provider": provider, "id": added.id}
                event("upstream_key_unreadable", level=logging.ERROR, **fields)
            return None

    def _tell_of_void_tiers(self, provider: str, declared: Declared) -> None:
        if mark := self._secret.mark:
            for key, role in declared.void([mark]).min_roles.items():
                if self._told.first(f"{provider} {key}"):
                    fields = {"provider": provider, "key": key, "min_role": role}
                    event("upstream_tier_void", level=logging.ERROR, **fields)
