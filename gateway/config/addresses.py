"""What makes an upstream address acceptable.

An address in the configuration is trusted to be a provider's, but not to be harmless: link-local
ones answer with a cloud machine's own credentials.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import httpx

_METADATA_ADDRESS = ipaddress.ip_address("fd00:ec2::254")
_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata.goog"})
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_LONGEST_NAME = 253
_SUCH_AS = "such as https://api.example.com/v1"
_OF_LABELS = "labels of 1 to 63 letters, digits and hyphens, with a dot between two"


def judge_base_url(url: str) -> tuple[str, str] | None:
    """Return what is wrong with an upstream address and what would be right, or `None`.

    The message never repeats the address, which may hold credentials.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "is not a valid URL", _SUCH_AS
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        return "holds white space", _SUCH_AS
    if parts.scheme not in ("http", "https"):
        return "must start with http:// or https://", _SUCH_AS
    if not host or port == 0:
        return "names no host", _SUCH_AS
    if "@" in parts.netloc:
        return "holds credentials", "put them into api_key: ${VARIABLE}"
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        return "must not hold a query or a fragment", "fixed request fields go into extra_body"
    encoded = _encoded_host(url)
    return ("names no valid host", _OF_LABELS) if encoded is None else _judge_host(encoded)


def _encoded_host(url: str) -> str | None:
    """Return the host as it goes on the wire, `None` when the client would refuse the address.

    Judge this one: a name in other scripts may come to an address, `169。254。169。254` does.
    """
    try:
        read = httpx.URL(url)
        # The client decodes the name again for some of its questions, which is stricter.
        return read.raw_host.decode("ascii").removesuffix(".") if read.host else None
    except (httpx.InvalidURL, ValueError):
        return None


def _judge_host(host: str) -> tuple[str, str] | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if re.fullmatch(r"(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+)){0,3}", host):
            return "writes an IP address in an unusual way", "write it as four decimal numbers"
        if host in _METADATA_NAMES:
            return "is a metadata service", "upstreams are never served from there"
        if len(host) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, host.split("."))):
            return "names no valid host", _OF_LABELS
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_link_local or address == _METADATA_ADDRESS:
        return "is a link-local or metadata address", "upstreams are never served from there"
    return None
