"""Recognise callers by their keys. Keys are kept and compared as digests only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from hashlib import sha256

from msgspec import Struct

from gateway.auth.addresses import bucket
from gateway.auth.holders import caller_of
from gateway.auth.made import MadeKeys, may_be_made
from gateway.config.result import Config
from gateway.core.caller import Caller
from gateway.errors import Unauthenticated
from gateway.telemetry.logs import Once, event

ADMIN_ID = "admin"
"""The caller id of the admin key that is in no file."""


class _Holder(Struct, frozen=True):
    caller: Caller
    expires_ms: int | None = None


class Authenticator:
    """Turns credentials into callers.

    Without keys in the config everybody is anonymous whose key is neither a made one nor the admin
    key; with `auth: none`, everybody but who has the admin key.
    """

    def __init__(
        self, config: Config, made: MadeKeys, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._users, self._teams = config.users, config.teams
        self._made = made
        self._clock = clock
        self._asks_for_keys = config.settings.auth == "keys"
        self._keys_required = self._asks_for_keys and config.keys is not None
        keys = (config.keys or ()) if self._asks_for_keys else ()
        self._ids = {key.id for key in keys}
        self._holders = {
            key.key_sha256: _Holder(caller_of(key, self._users, self._teams), key.expires_ms)
            for key in keys
        }
        if config.admin_key_sha256:
            admin = Caller(id=ADMIN_ID, role="admin")
            self._holders[config.admin_key_sha256] = _Holder(admin)
        self._hidden = Once()

    async def caller(self, headers: Mapping[str, str], address: str | None) -> Caller:
        """Who asks. Only a key of the form of made ones may have to be asked of Redis.

        Raises `Unauthenticated` without a valid key, where keys are needed, and `StateUnavailable`
        when it cannot be known whether a key is valid.
        """
        key = presented_key(headers)
        if key:
            # A look-up by digest takes the same time for every wrong key.
            digest = sha256(key.encode()).hexdigest()
            holder = self._holders.get(digest)
            if holder is None and self._asks_for_keys and may_be_made(key):
                holder = await self._find(digest)
            if holder:
                if holder.expires_ms is None or self._clock() * 1000 < holder.expires_ms:
                    return holder.caller
                if self._keys_required:
                    raise Unauthenticated("The API key has expired.")
        if not self._keys_required:
            return Caller(id=bucket(address))
        if key:
            raise Unauthenticated("The API key is not valid.")
        raise Unauthenticated(
            "No API key was sent. Send it as `Authorization: Bearer <key>` or `X-API-Key: <key>`."
        )

    async def _find(self, digest: str) -> _Holder | None:
        """Whoever holds a made key. Ids of the file are its own: no other key answers to them."""
        record = await self._made.find(digest)
        if record is None:
            return None
        if record.id in self._ids:
            if self._hidden.first(record.id):
                event("made_key_hidden", level=logging.WARNING, key=record.id)
            return None
        return _Holder(caller_of(record, self._users, self._teams), record.expires_ms)


def presented_key(headers: Mapping[str, str]) -> str | None:
    """The key a request carries, in either of the two usual headers."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key", "").strip() or None
