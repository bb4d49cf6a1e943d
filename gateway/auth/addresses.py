"""The client's address, and the bucket that anonymous callers share."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import (
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Network = IPv4Network | IPv6Network


class Proxies:
    """The proxies whose word on a client's address and request id is taken."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted: list[Network] = [ip_network(text, strict=False) for text in trusted]

    def trusts(self, address: str) -> bool:
        """Whether an address is a configured proxy."""
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._trusted)

    def is_near(self, peer: str | None) -> bool:
        """Whether a peer is this host or a trusted proxy. A unix socket has no address: near."""
        return peer is None or is_loopback(peer) or self.trusts(peer)

    def client(self, peer: str | None, forwarded_for: str | None) -> str | None:
        """The client's address: the last entry of X-Forwarded-For that no trusted proxy wrote.

        `None` when a trusted proxy does not say, or all it names are proxies: then callers behind
        it cannot be told apart.
        """
        if peer is None or not self.trusts(peer):
            return peer
        for entry in reversed((forwarded_for or "").split(",")):
            address = entry.strip()
            if address and not self.trusts(address):
                return address
        return None


def is_loopback(host: str) -> bool:
    """Whether an address or name is this host's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bucket(address: str | None) -> str:
    """The caller id of an address: IPv4 as it is, IPv6 by its /64, else the text."""
    if address is None:
        return "ip:unknown"
    try:
        parsed = ip_address(address)
    except ValueError:
        return f"ip:{address[:64]}"
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped:
            return f"ip:{parsed.ipv4_mapped}"
        return f"ip:{ip_network((parsed, 64), strict=False)}"
    return f"ip:{parsed}"
