"""Recognise callers by their keys. Keys are kept and compared as digests only."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from gateway.auth.addresses import bucket
from gateway.config.result import Config
from gateway.core.caller import Caller
from gateway.errors import Unauthenticated


class Authenticator:
    """Turns credentials into callers.

    Without keys in the config, or with `auth: none`, everybody is anonymous and any credential but
    the admin key is ignored.
    """

    def __init__(self, config: Config) -> None:
        self._callers: dict[str, Caller] = {}
        self._keys_required = config.settings.auth == "keys" and config.keys is not None
        if self._keys_required:
            for key in config.keys or ():
                self._callers[key.key_sha256] = Caller(id=key.id, role=key.role, models=key.models)
        if config.admin_key_sha256:
            self._callers[config.admin_key_sha256] = Caller(id="admin", role="admin")

    def caller(self, headers: Mapping[str, str], address: str | None) -> Caller:
        """Who asks. Raises `Unauthenticated` without a known key, where keys are needed."""
        key = presented_key(headers)
        # A look-up by digest takes the same time for every wrong key.
        known = self._callers.get(sha256(key.encode()).hexdigest()) if key else None
        if known:
            return known
        if not self._keys_required:
            return Caller(id=bucket(address))
        if key:
            raise Unauthenticated("The API key is not valid.")
        raise Unauthenticated(
            "No API key was sent. Send it as `Authorization: Bearer <key>` or `X-API-Key: <key>`."
        )


def presented_key(headers: Mapping[str, str]) -> str | None:
    """The key a request carries, in either of the two usual headers."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key", "").strip() or None
