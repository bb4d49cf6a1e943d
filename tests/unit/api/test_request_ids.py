"""The id of a request, and its headers."""

from __future__ import annotations

import re

import pytest

from gateway.api.request import FreshIds, headers_of, peer_of, request_id
from gateway.auth.addresses import Proxies

PROXIES = Proxies(["10.0.0.0/8"])


def ask(offered: str, peer: str | None = "127.0.0.1") -> str:
    return request_id({"x-request-id": offered}, peer, PROXIES, FreshIds())


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "10.1.1.1", "::ffff:10.1.1.1", None])
def test_a_near_peer_names_its_request(peer: str | None) -> None:
    assert ask("mine-1.2_3", peer) == "mine-1.2_3"


@pytest.mark.parametrize("peer", ["1.2.3.4", "2001:db8::1", "junk", ""])
def test_a_stranger_does_not(peer: str) -> None:
    assert ask("mine", peer) != "mine"


@pytest.mark.parametrize("offered", ["a", "Z9._-", "x" * 128])
def test_well_formed_ids_are_taken(offered: str) -> None:
    assert ask(offered) == offered


@pytest.mark.parametrize(
    "offered",
    ["", "x" * 129, "a b", "a\r\nx: y", "a\n", "é", "a/b", "a;b", "\x00", "١"],
)
def test_others_are_replaced(offered: str) -> None:
    assert re.fullmatch(r"req_[0-9a-f]{32}", ask(offered))


def test_new_ids_are_all_different() -> None:
    assert len({ask("") for _ in range(100)}) == 100


def test_a_repeated_header_is_one_list() -> None:
    scope = {"headers": [(b"x-a", b"1"), (b"x-b", b"\xe9"), (b"x-a", b"2")]}
    assert headers_of(scope) == {"x-a": "1, 2", "x-b": "é"}


def test_a_proxy_that_adds_a_line_of_its_own_hides_nobody_behind_it() -> None:
    # Given a client behind two trusted proxies, of which the second writes a line of its own
    lines = [b"6.6.6.6, 9.9.9.9", b"10.0.0.2"]
    headers = headers_of({"headers": [(b"x-forwarded-for", line) for line in lines]})
    # Then the client is the one that the first proxy names
    assert PROXIES.client("10.0.0.1", headers["x-forwarded-for"]) == "9.9.9.9"


def test_a_unix_socket_has_no_peer() -> None:
    assert peer_of({"client": None}) is None
    assert peer_of({}) is None
    assert peer_of({"client": ("1.2.3.4", 5)}) == "1.2.3.4"
