"""Upstream keys encrypted: they open under the same secret and name alone."""

from __future__ import annotations

import pytest

from gateway.dispatch.sealing import CannotOpen, Seal

KEY = "sk-canary"


@pytest.mark.parametrize("secret", ["s", "a longer secret, with ümlauts", "x" * 10_000])
def test_a_key_opens_again_in_another_process(secret: str) -> None:
    assert Seal(secret).open(Seal(secret).close(KEY, "p/1"), "p/1") == KEY


def test_what_is_kept_tells_nothing_and_is_never_the_same() -> None:
    seal = Seal("s")
    sealed = {seal.close(KEY, "p/1") for _ in range(20)}

    assert len(sealed) == 20
    assert not any(KEY in one or " " in one or "=" in one.rstrip("=") for one in sealed)


def test_another_secret_opens_nothing() -> None:
    with pytest.raises(CannotOpen):
        Seal("other").open(Seal("s").close(KEY, "p/1"), "p/1")


def test_a_record_put_in_anothers_place_does_not_open() -> None:
    with pytest.raises(CannotOpen):
        Seal("s").open(Seal("s").close(KEY, "p/1"), "p/2")


@pytest.mark.parametrize("cut", [slice(0), slice(9), slice(-8), slice(8, None)])
def test_what_somebody_has_cut_does_not_open(cut: slice) -> None:
    with pytest.raises(CannotOpen):
        Seal("s").open(Seal("s").close(KEY, "p/1")[cut], "p/1")


@pytest.mark.parametrize("nonsense", ["", "%%%", "no base64!", "é"])
def test_nonsense_does_not_open(nonsense: str) -> None:
    with pytest.raises(CannotOpen):
        Seal("s").open(nonsense, "p/1")
