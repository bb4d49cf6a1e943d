"""Upstream keys encrypted under the cluster's secret, as they are kept in Redis.

Each key gets a nonce of its own (AES-256-GCM), and opens under the name it was sealed under alone,
so that one record cannot be put in another's place.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_PURPOSE = b"concord upstream keys"


class CannotOpen(Exception):
    """What is kept was sealed under another secret, under another name, or has been changed."""


class Seal:
    """Encrypts under a secret that is text of any length."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._cipher: AESGCM | None = None

    def close(self, key: str, name: str) -> str:
        """Encrypt a key, for `name` alone."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._aead().encrypt(nonce, key.encode(), name.encode())
        return base64.urlsafe_b64encode(nonce + sealed).decode()

    def open(self, sealed: str, name: str) -> str:
        """Decrypt what `close` has given. Raises `CannotOpen`."""
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.urlsafe_b64decode(sealed.encode())
            nonce, text = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            return self._aead().decrypt(nonce, text, name.encode()).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise CannotOpen(name) from None

    def _aead(self) -> AESGCM:
        # Loaded where it is needed: most clusters keep no key, and it takes a tenth of a second.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        if self._cipher is None:
            derive = HKDF(SHA256(), length=32, salt=None, info=_PURPOSE)
            self._cipher = AESGCM(derive.derive(self._secret.encode()))
        return self._cipher
