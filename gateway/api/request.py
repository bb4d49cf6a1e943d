"""What every endpoint reads of a request: id, body, headers."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping

from starlette.types import Receive, Scope

from gateway.auth.addresses import Proxies
from gateway.errors import RequestTooLarge

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")


class ClientGone(Exception):
    """The client hung up before its request was complete."""


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers by lower-case name; those given several times as one list, as HTTP reads them."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def peer_of(scope: Scope) -> str | None:
    """The peer's address; `None` on a unix socket."""
    client = scope.get("client")
    return client[0] if client else None


class FreshIds:
    """New request ids. Randomness is fetched for many at a time: it costs a call to the kernel."""

    def __init__(self) -> None:
        self._random = b""

    def __call__(self) -> str:
        """The next one, `req_<hex32>`."""
        if not self._random:
            self._random = secrets.token_bytes(256 * 16)
        taken, self._random = self._random[:16], self._random[16:]
        return "req_" + taken.hex()


def request_id(
    headers: Mapping[str, str], peer: str | None, proxies: Proxies, fresh: Callable[[], str]
) -> str:
    """The client's own `x-request-id` when it is well formed and comes from near, else a new one.

    A repeated id repeats its draw, so strangers may not choose it.
    """
    offered = headers.get("x-request-id", "")
    if _REQUEST_ID.match(offered) and proxies.is_near(peer):
        return offered
    return fresh()


async def read_body(receive: Receive, headers: Mapping[str, str], max_bytes: int) -> bytes:
    """Read the body, at most `max_bytes` of it.

    Raises `RequestTooLarge` as soon as the size is known to be over, and `ClientGone`.
    """
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(max_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(f"The request body is larger than {max_bytes} bytes.")
