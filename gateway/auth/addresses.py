"""The client's address, and the bucket that anonymous callers share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from gateway.core.caller import UNKNOWN_ADDRESS

Network = IPv4Network | IPv6Network

MAX_CHARS = 64
"""Longer than any address; longer texts are none, and are not remembered."""
_WITH_PORT = re.compile(r"\[([^]]*)\](?::\d+)?|([\d.]+):\d+", re.ASCII)


class Proxies:
    """The proxies whose word on a client's address and request id is taken."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted: list[Network] = [ip_network(text, strict=False) for text in trusted]

    def trusts(self, address: str) -> bool:
        """Whether an address is a configured proxy."""
        parsed = _parse(address)
        return parsed is not None and any(parsed in network for network in self._trusted)

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
    parsed = _parse(host)
    return parsed.is_loopback if parsed else host == "localhost"


def bucket(address: str | None) -> str:
    """The caller id of an address: IPv4 as it is, IPv6 by its /64, else the text."""
    if address is None:
        return UNKNOWN_ADDRESS
    parsed = _parse(address)
    if parsed is None:
        return f"ip:{address[:MAX_CHARS]}"
    if isinstance(parsed, IPv6Address):
        return f"ip:{ip_network((parsed, 64), strict=False)}"
    return f"ip:{parsed}"


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """An address as peers and proxies write it: perhaps with a port, IPv4 perhaps inside IPv6."""
    return _parse_address(text) if len(text) <= MAX_CHARS else None


@lru_cache(maxsize=4096)
def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    with_port = _WITH_PORT.fullmatch(text)
    try:
        parsed = ip_address((with_port[1] or with_port[2]) if with_port else text)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed
