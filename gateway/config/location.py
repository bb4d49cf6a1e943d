"""The identity of a route: where it leads, in one short word.

A location names the same engine on every replica, so it may not depend on which replica looks.
That is why a local address carries its host's id when Redis is shared by several hosts.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from gateway.config import kinds

_LOCAL = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "host.docker.internal", "::1", "::"})
_TLD_LIKE = frozenset({"com", "io", "ai", "org", "net", "xyz"})


def locate(kind: str, base_url: str, *, host_id: str, shared_redis: bool) -> str:
    """Derive a route's location from its kind and address.

    `local-8000` for an engine on this host (`local-8000@host-a` when `shared_redis`),
    `10.0.0.5-8000` for an address, `minimax-api` for a host name of a generic kind, `zai-api` for
    a kind that names its provider. `base_url` must be valid.
    """
    parts = urlsplit(base_url)
    host = (parts.hostname or "").rstrip(".")
    here = f"@{host_id}" if shared_redis else ""
    if host in _LOCAL:
        return (f"local-{parts.port}" if parts.port else "local") + here
    if address := _address(host):
        port = parts.port or (443 if parts.scheme == "https" else 80)
        # A colon would end the location where state and logs join it to other words.
        text = str(address).replace(":", ".").replace("%", "_")
        return f"{text}-{port}" + (here if address.is_loopback else "")
    if kind in kinds.GENERIC:
        label = host.replace("api.", "").replace("llm.", "").split(".")[0]
        label = re.sub(r"[^a-z0-9_-]", "-", label)
        if label:
            return label if label in _TLD_LIKE else f"{label}-api"
    return f"{kind}-api"


def is_local(base_url: str) -> bool:
    """Say whether an address is this host's own. One that cannot be read is taken for remote."""
    try:
        return (urlsplit(base_url).hostname or "").rstrip(".") in _LOCAL
    except ValueError:
        return False


def is_shared(redis_url: str | None) -> bool:
    """Say whether replicas on other hosts may use this Redis; `None` is the embedded store."""
    if redis_url is None or redis_url == "embedded" or redis_url.startswith("unix://"):
        return False
    try:
        host = urlsplit(redis_url).hostname or "localhost"
    except ValueError:
        return True
    address = _address(host)
    return not (host == "localhost" or (address is not None and address.is_loopback))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
