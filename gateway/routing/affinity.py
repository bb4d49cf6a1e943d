"""The name under which the cluster remembers a caller: its pins, and what engines have cached."""

from __future__ import annotations

from gateway.core.caller import UNKNOWN_ADDRESS, Caller
from gateway.core.digests import keyed


def affinity_key(caller: Caller | None, session_id: str | None, secret: bytes) -> str | None:
    """Digest a caller and its session into 16 hex digits.

    A session is its caller's own: two callers that name the same one have different keys. `None`
    for traffic of ours that no caller asked for, and for callers behind a proxy that tells nothing
    of them: they must not all be kept on one endpoint.
    """
    if caller is None or caller.id == UNKNOWN_ADDRESS:
        return None
    name = caller.id.encode()
    digest = keyed(secret, b"caller")
    digest.update(b"%d:%b" % (len(name), name))
    digest.update((session_id or "").encode())
    return digest.hexdigest()
