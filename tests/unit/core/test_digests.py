"""Keyed digests."""

from __future__ import annotations

import pytest

from gateway.core.digests import keyed, mark_of, upstream_key_id


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


def test_an_upstream_keys_id_begins_with_the_mark_of_its_secret() -> None:
    ids = {upstream_key_id(secret, key) for secret in (b"s", b"t") for key in ("k0", "k1")}

    assert len(ids) == 4
    assert {len(id) for id in ids} == {12}
    assert {id[:4] for id in ids} == {mark_of(b"s"), mark_of(b"t")}
