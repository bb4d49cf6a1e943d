"""Digests by which the cluster knows callers and prompts again without being told of them."""

from __future__ import annotations

from hashlib import blake2b

_LONGEST_KEY = blake2b.MAX_KEY_SIZE


def keyed(secret: bytes, purpose: bytes, *, size: int = 8) -> blake2b:
    """Start a digest of `size` bytes that nobody can make, or try guesses on, without the secret.

    `purpose`, at most 16 bytes, keeps digests of different things apart. Raises ValueError for an
    empty secret, which would key nothing.
    """
    if not secret:
        raise ValueError("digests need a secret")
    key = secret if len(secret) <= _LONGEST_KEY else blake2b(secret).digest()
    return blake2b(key=key, person=purpose, digest_size=size)


def mark_of(secret: bytes) -> str:
    """Four hex digits by which secrets are told apart: too few to test guesses on."""
    return keyed(secret, b"mark", size=2).hexdigest()


def upstream_key_id(secret: bytes, key: str) -> str:
    """The 12 hex digits by which the cluster knows an upstream key.

    The first four are the secret's mark: it shows what another secret has made unknown.
    """
    digest = keyed(secret, b"upstream key", size=4)
    digest.update(key.encode())
    return mark_of(secret) + digest.hexdigest()
