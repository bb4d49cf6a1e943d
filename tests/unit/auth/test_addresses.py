"""Which address a request counts for, and who may say so."""

from __future__ import annotations

import pytest

from gateway.auth.addresses import Proxies, bucket, is_loopback

PROXIES = Proxies(["10.0.0.0/8", "192.168.1.7", "2001:db8:1::/48"])


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("1.2.3.4", "ip:1.2.3.4"),
        ("2001:db8::1", "ip:2001:db8::/64"),
        ("2001:db8:0:0:ffff::9", "ip:2001:db8::/64"),
        ("2001:db8:0:1::1", "ip:2001:db8:0:1::/64"),
        ("::ffff:1.2.3.4", "ip:1.2.3.4"),
        ("fe80::1%eth0", "ip:fe80::/64"),
        ("1.2.3.4:5678", "ip:1.2.3.4"),
        ("[2001:db8::1]:443", "ip:2001:db8::/64"),
        ("[2001:db8::1]", "ip:2001:db8::/64"),
        ("testclient", "ip:testclient"),
        ("x" * 1000, "ip:" + "x" * 64),
        (None, "ip:unknown"),
    ],
)
def test_an_address_has_one_bucket_however_it_is_written(
    address: str | None, expected: str
) -> None:
    assert bucket(address) == expected


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("10.1.2.3", True),
        ("192.168.1.7", True),
        ("192.168.1.8", False),
        ("2001:db8:1::5", True),
        ("2001:db8:2::5", False),
        ("::ffff:10.1.2.3", True),
        ("10.1.2.3:4711", True),
        ("not an address", False),
        ("", False),
        ("127.0.0.1", False),
    ],
)
def test_only_configured_networks_are_trusted(address: str, trusted: bool) -> None:
    assert PROXIES.trusts(address) is trusted


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "client"),
    [
        # A stranger's word on its own address counts for nothing.
        ("1.2.3.4", "9.9.9.9", "1.2.3.4"),
        ("127.0.0.1", "9.9.9.9", "127.0.0.1"),
        # A proxy's does, from the right, past other proxies, and no further.
        ("10.0.0.1", "9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9, 10.0.0.2", "9.9.9.9"),
        ("10.0.0.1", "9.9.9.9,10.0.0.2:81,192.168.1.7", "9.9.9.9"),
        ("10.0.0.1", "junk", "junk"),
        ("::ffff:10.0.0.1", "9.9.9.9", "9.9.9.9"),
        # Where it says nothing, callers behind it cannot be told apart.
        ("10.0.0.1", None, None),
        ("10.0.0.1", "", None),
        ("10.0.0.1", " , ,", None),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", None),
        (None, "9.9.9.9", None),
    ],
)
def test_the_client_is_the_last_address_that_no_trusted_proxy_wrote(
    peer: str | None, forwarded_for: str | None, client: str | None
) -> None:
    assert PROXIES.client(peer, forwarded_for) == client


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("localhost.evil.com", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_is_this_host_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("peer", "near"),
    [("127.0.0.1", True), ("10.0.0.1", True), (None, True), ("1.2.3.4", False)],
    ids=["loopback", "proxy", "unix socket", "stranger"],
)
def test_near_peers_are_this_host_and_trusted_proxies(peer: str | None, near: bool) -> None:
    assert PROXIES.is_near(peer) is near
