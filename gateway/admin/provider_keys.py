"""Upstream keys at run time: which there are, which are left alone, whom they are kept for.

A key is shown by its digest alone. One that is added here is kept encrypted; what is configured
stays where it is, and only whom it is kept for can be said here. Routes that choose among several
keys follow a change with their next request, any other route within two seconds.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from gateway.admission.secret import Secret
from gateway.config.result import Config
from gateway.config.schema import Role
from gateway.config.upstream_keys import is_key, roles_by_key
from gateway.core.digests import upstream_key_id
from gateway.core.route import ROLES
from gateway.dispatch.sealing import Seal
from gateway.errors import InvalidRequest, NotFound, StateUnavailable
from gateway.state.pool_store import AddedKey, Declared, Mute, PoolStore

_LONGEST_KEY = 8192


class NewKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body that adds a key for all routes of a provider."""

    provider: str
    key: str
    min_role: Role = "free"

    def __repr__(self) -> str:
        """Leave the key out."""
        return f"NewKey(provider={self.provider!r}, min_role={self.min_role!r})"


class Tier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body that says whom an added key is kept for."""

    min_role: Role


class KeyTier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body that says whom a key is kept for wherever it comes from; `key` is its digest."""

    provider: str
    key: str
    min_role: Role


class ShownMute(Struct, frozen=True, kw_only=True):
    """How a key fares at one address where it was refused."""

    at: str
    """Host and port."""
    left_s: float
    """For how long it is left alone there; 0 when it is not."""
    failures: int
    status: int


class ProviderKey(Struct, frozen=True, kw_only=True):
    """A key without itself."""

    provider: str
    key: str
    """Its digest."""
    is_configured: bool
    """Whether a file or the environment has it."""
    id: str | None = None
    """Of one that was added."""
    min_role: str
    """The strictest of all that is said of it."""
    kept_for: str | None = None
    """What was said of this digest; it stays when the key disappears."""
    mutes: Sequence[ShownMute] = ()
    made_at: datetime | None = None
    made_by: str | None = None
    is_void: bool = False
    """Whether it was declared under another secret, so that this counts for nothing."""


class AllProviderKeys(Struct, frozen=True, kw_only=True):
    """All keys of all providers, or of one."""

    keys: Sequence[ProviderKey]


class RemovedKey(Struct, frozen=True, kw_only=True):
    """A key that is no more."""

    id: str
    removed: bool = True


class AddedAlready(InvalidRequest):
    """The key is there."""

    status = 409
    code = "conflict"


class UpstreamKeys:
    """The keys under one configuration. Each method raises `StateUnavailable`."""

    def __init__(self, config: Config, store: PoolStore, secret: Secret) -> None:
        self._store = store
        self._secret = secret
        self._seal = Seal(config.secret) if config.secret else None
        self._configured = roles_by_key(config.routes)

    async def all(self, provider: str | None = None) -> AllProviderKeys:
        """Of every provider that a route has, or of one, which may be gone."""
        labels = sorted(self._configured) if provider is None else [provider]
        found = await asyncio.gather(*map(self._of, labels))
        return AllProviderKeys(keys=[key for keys in found for key in keys])

    async def add(self, asked: NewKey, *, by: str) -> ProviderKey:
        """Add a key. Raises `InvalidRequest`, `NotFound` and `AddedAlready`."""
        if self._seal is None:
            raise InvalidRequest(
                "Keys are kept encrypted under CONCORD_SECRET, and it is not set: set it to the "
                "same random text on all replicas."
            )
        if asked.provider not in self._configured:
            raise NotFound(f"No route has the provider '{asked.provider}'.", param="provider")
        key = asked.key.strip()
        if not is_key(key) or len(key) > _LONGEST_KEY:
            raise InvalidRequest("A key is printable ASCII without spaces.", param="key")
        id = f"{asked.provider}/{secrets.token_hex(4)}"
        added = AddedKey(
            id=id,
            key=upstream_key_id(self._known_secret(), key),
            min_role=asked.min_role,
            sealed=self._seal.close(key, id),
            made_ms=int(time.time() * 1000),
            made_by=by,
        )
        if not await self._store.add(asked.provider, added):
            raise AddedAlready("This key has been added already.", param="key")
        return await self._shown(asked.provider, added.key)

    async def keep_added(self, key_id: str, tier: Tier) -> ProviderKey:
        """Say whom an added key is kept for. Raises `NotFound`."""
        provider = _provider_of(key_id)
        if not await self._store.retier_added(provider, key_id, tier.min_role):
            raise _no_such(key_id)
        declared = await self._store.declared(provider)
        digest = next((one.key for one in declared.added if one.id == key_id), None)
        if digest is None:  # removed since
            raise _no_such(key_id)
        return await self._shown(provider, digest)

    async def keep(self, asked: KeyTier) -> ProviderKey:
        """Say whom a key is kept for wherever it comes from.

        Raises `InvalidRequest` and `NotFound`.
        """
        if not re.fullmatch(r"[0-9a-f]{12}", asked.key):
            raise InvalidRequest(
                "key must be the 12 hex digits by which GET /admin/provider-keys lists it, and not "
                "the key itself.",
                param="key",
            )
        known = {one.key for one in await self._of(asked.provider)}
        if asked.key not in known:
            raise NotFound(
                f"The provider '{asked.provider}' has no key with this digest.", param="key"
            )
        await self._store.retier(asked.provider, asked.key, asked.min_role)
        return await self._shown(asked.provider, asked.key)

    async def remove(self, key_id: str) -> RemovedKey:
        """Forget an added key. Raises `NotFound`."""
        if not await self._store.remove(_provider_of(key_id), key_id):
            raise _no_such(key_id)
        return RemovedKey(id=key_id)

    async def _shown(self, provider: str, digest: str) -> ProviderKey:
        shown = next((one for one in await self._of(provider) if one.key == digest), None)
        return shown or ProviderKey(
            provider=provider, key=digest, is_configured=False, min_role=ROLES[0]
        )

    async def _of(self, provider: str) -> list[ProviderKey]:
        """Of one provider: the configured keys, the added ones, and those that only were."""
        secret = self._known_secret()
        declared, mutes = await asyncio.gather(
            self._store.declared(provider), self._store.mutes(provider)
        )
        configured = {
            upstream_key_id(secret, key): role
            for key, role in self._configured.get(provider, {}).items()
        }
        digests = dict.fromkeys((*configured, *(one.key for one in declared.added)))
        digests |= dict.fromkeys(declared.min_roles)
        mark = self._secret.mark
        return [
            _shown(provider, digest, configured, declared, mutes, mark=mark) for digest in digests
        ]

    def _known_secret(self) -> bytes:
        if self._secret.key is None:
            raise StateUnavailable
        return self._secret.key


def _shown(
    provider: str,
    digest: str,
    configured: Mapping[str, str],
    declared: Declared,
    mutes: Sequence[Mute],
    *,
    mark: str,
) -> ProviderKey:
    added = next((one for one in declared.added if one.key == digest), None)
    kept_for = declared.min_roles.get(digest)
    roles = (configured.get(digest), added and added.min_role, kept_for)
    return ProviderKey(
        provider=provider,
        key=digest,
        is_configured=digest in configured,
        id=added.id if added else None,
        min_role=max((role for role in roles if role), key=ROLES.index),
        kept_for=kept_for,
        mutes=[
            ShownMute(
                at=mute.at, left_s=mute.left_ms / 1000, failures=mute.failures, status=mute.status
            )
            for mute in mutes
            if mute.key == digest
        ],
        made_at=datetime.fromtimestamp(added.made_ms / 1000, UTC) if added else None,
        made_by=added.made_by if added else None,
        is_void=not digest.startswith(mark),
    )


def _provider_of(key_id: str) -> str:
    """The provider that an id names. Raises `NotFound` for what is no id."""
    match = re.fullmatch(r"(.+)/[0-9a-f]{8}", key_id, re.DOTALL)
    if match is None:
        raise _no_such(key_id)
    return match[1]


def _no_such(key_id: str) -> NotFound:
    return NotFound(f"No upstream key was added as '{key_id}'.")
