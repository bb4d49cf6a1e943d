"""Keyed digests."""

from __future__ import annotations

import pytest

from gateway.core.digests import keyed


def digest(secret: bytes, purpose: bytes = b"p", text: bytes = b"text") -> str:
    hasher = keyed(secret, purpose)
    hasher.update(text)
    return hasher.hexdigest()


def test_secret_purpose_and_content_all_count() -> None:
    made = {digest(b"s"), digest(b"t"), digest(b"s", b"q"), digest(b"s", text=b"other")}
    assert len(made) == 4
    assert digest(b"s") in made


def test_every_byte_of_a_secret_of_any_length_counts() -> None:
    secrets = [b"x" * 64, b"x" * 65, b"x" * 999 + b"y", b"x" * 999 + b"z"]
    assert len({digest(secret) for secret in secrets}) == len(secrets)


def test_nothing_is_keyed_with_nothing() -> None:
    with pytest.raises(ValueError, match="secret"):
        keyed(b"", b"p")


def test_a_digest_has_the_size_asked_for() -> None:
    assert len(keyed(b"s", b"p", size=4).digest()) == 4
