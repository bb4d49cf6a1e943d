"""Under which name a caller's affinity is kept."""

from __future__ import annotations

import re

import pytest

from gateway.auth.addresses import Proxies, bucket
from gateway.core.caller import Caller
from gateway.routing.affinity import affinity_key

SECRET = b"secret"


def key(caller: str, session: str | None = None, secret: bytes = SECRET) -> str | None:
    return affinity_key(Caller(id=caller), session, secret)


def test_a_key_is_sixteen_hex_digits_that_need_the_secret() -> None:
    assert re.fullmatch("[0-9a-f]{16}", key("alice") or "")
    assert key("alice") == key("alice")
    assert key("alice") != key("alice", secret=b"other")


def test_callers_and_their_sessions_are_told_apart() -> None:
    asked = [(caller, session) for caller in ("alice", "bob") for session in (None, "1", "2")]
    assert len({key(*one) for one in asked}) == len(asked)


def test_a_caller_cannot_name_its_session_so_as_to_be_another() -> None:
    names = [("a", "bc"), ("ab", "c"), ("abc", None), ("a", "1:bc"), ("1:a", "bc"), ("a", ":bc")]
    assert len({key(*one) for one in names}) == len(names)


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("1.2.3.4", "::ffff:1.2.3.4"),
        ("2001:db8::1", "2001:db8::ffff"),
        ("2001:db8::1", "[2001:db8::1]:443"),
        ("1.2.3.4", "1.2.3.4:5678"),
    ],
)
def test_one_address_is_one_caller_however_it_is_written(address: str, same: str) -> None:
    assert key(bucket(address)) == key(bucket(same))


def test_other_networks_grants_and_texts_are_other_callers() -> None:
    callers = [
        *map(bucket, ("1.2.3.4", "1.2.3.5", "2001:db8::1", "2001:db8:0:1::1", "junk")),
        "grant:g1",
        "1.2.3.4",
    ]
    assert len({key(caller) for caller in callers}) == len(callers)


@pytest.mark.parametrize("forwarded_for", [None, "", "10.0.0.2", "unknown"])
def test_callers_that_a_proxy_does_not_tell_apart_have_no_affinity(
    forwarded_for: str | None,
) -> None:
    address = Proxies(["10.0.0.0/8"]).client("10.0.0.1", forwarded_for)
    assert key(bucket(address)) is None
    assert key(bucket(address), "a session of theirs") is None


def test_traffic_that_no_caller_asked_for_has_no_affinity() -> None:
    assert affinity_key(None, "session", SECRET) is None
