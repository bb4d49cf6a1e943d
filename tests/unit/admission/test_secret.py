"""Under what replicas know callers and prompts, and how they tell whether it is the same."""

from __future__ import annotations

import re

from gateway.admission.secret import Secret


def test_replicas_with_the_same_secret_have_the_same_key_and_mark() -> None:
    one, same, other = Secret("a secret"), Secret("a secret"), Secret("another")
    assert (one.key, one.mark) == (same.key, same.mark)
    assert one.key != other.key
    assert one.mark != other.mark


def test_the_mark_is_too_short_to_test_guesses_on() -> None:
    secret = Secret("a secret")
    assert re.fullmatch("[0-9a-f]{4}", secret.mark)


def test_there_is_neither_before_the_salt_in_force_is_known() -> None:
    secret = Secret(None)
    assert (secret.key, secret.mark) == (None, "")
    assert secret.offer
    assert secret.offer != Secret(None).offer


def test_the_salt_in_force_is_adopted_and_offered_from_then_on() -> None:
    secret, other = Secret(None), Secret(None)
    for one in (secret, other):
        one.adopt("salt")
    assert secret.key == other.key
    assert secret.mark == other.mark != ""
    assert secret.offer == "salt"


def test_a_secret_of_the_configs_own_outranks_any_salt() -> None:
    secret = Secret("a secret")
    key = secret.key
    secret.adopt("salt")
    assert (secret.key, secret.offer) == (key, "")
