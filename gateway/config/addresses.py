"""What makes an upstream address acceptable.

An address in the configuration is trusted to be a provider's, but not to be harmless: link-local
ones answer with a cloud machine's own credentials.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

_METADATA_ADDRESS = ipaddress.ip_address("fd00:ec2::254")
_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata.goog"})


def judge_base_url(url: str) -> tuple[str, str] | None:
    """Return what is wrong with an upstream address and what would be right, or `None`.

    The message never repeats the address, which may hold credentials.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "is not a valid URL", "such as https://api.example.com/v1"
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        return "holds white space", "such as https://api.example.com/v1"
    if parts.scheme not in ("http", "https"):
        return "must start with http:// or https://", "such as https://api.example.com/v1"
    if not host or port == 0:
        return "names no host", "such as https://api.example.com/v1"
    if "@" in parts.netloc:
        return "holds credentials", "put them into api_key: ${VARIABLE}"
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        return "must not hold a query or a fragment", "fixed request fields go into extra_body"
    return _judge_host(host)


def _judge_host(host: str) -> tuple[str, str] | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if re.fullmatch(r"(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+)){0,3}", host):
            return "writes an IP address in an unusual way", "write it as four decimal numbers"
        if host in _METADATA_NAMES:
            return "is a metadata service", "upstreams are never served from there"
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_link_local or address == _METADATA_ADDRESS:
        return "is a link-local or metadata address", "upstreams are never served from there"
    return None
