"""What ids are keyed with before they enter Redis."""

from __future__ import annotations

import secrets
from hashlib import blake2b

from gateway.core.digests import mark_of


class Secret:
    """The secret of the config, else a salt that the replicas share through Redis.

    Each replica offers a salt with its heartbeats; the first one that was offered is everybody's.
    """

    def __init__(self, configured: str | None) -> None:
        self.key = _key(configured) if configured else None
        """32 bytes; `None` until the salt in force is known."""
        self.offer = "" if configured else secrets.token_hex(16)
        """The salt to offer with the next heartbeat; empty where there is a secret."""

    @property
    def mark(self) -> str:
        """What replicas with the same key share (`mark_of`); empty while there is none."""
        return mark_of(self.key) if self.key else ""

    def adopt(self, salt: str) -> None:
        """Take the salt in force, unless there is a secret of the config's own."""
        if salt and self.offer:
            self.offer, self.key = salt, _key(salt)


def _key(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=32).digest()
