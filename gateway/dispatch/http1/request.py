"""Write a request as bytes, or refuse one that a peer could read as something else.

Header values and the target may hold no CR, LF or NUL, names are tokens, and the length that the
headers announce is the length of the body. What fails is an httpx.LocalProtocolError.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from functools import lru_cache

import httpx
from msgspec import Struct

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_ENDS_A_LINE = b"\x00\r\n"
_ACTED_ON = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})


class Outgoing(Struct):
    """A request on its way."""

    head: bytes
    body: bytes
    """The whole body, where it is known."""
    parts: httpx.AsyncByteStream | None
    """The body where it is not. It can be read once."""
    length: int | None
    """What `parts` must add up to; without it they are sent as chunks."""
    is_head: bool
    """Whether it asks for a response without its body."""
    closes: bool
    """Whether it asks for the connection to be closed."""

    async def framed(self) -> AsyncGenerator[bytes, None]:
        """`parts`, ready to be written."""
        assert self.parts is not None
        left = self.length
        async for part in self.parts:
            if left is None:
                if part:  # an empty chunk would end the body
                    yield b"%x\r\n%b\r\n" % (len(part), part)
                continue
            left -= len(part)
            if left < 0:
                raise httpx.LocalProtocolError("body is longer than its content-length")
            yield part
        if left:
            raise httpx.LocalProtocolError("body is shorter than its content-length")
        if left is None:
            yield b"0\r\n\r\n"


def encode(request: httpx.Request) -> Outgoing:
    """Write a request. Raises httpx.LocalProtocolError."""
    fields = request.headers.raw
    acted_on = _acted_on(fields)
    lines = [_request_line(request.method, request.url.raw_path), *map(b": ".join, fields)]
    if b"host" not in acted_on:
        lines.insert(1, b"Host: " + request.url.netloc)
    head = b"\r\n".join([*lines, b"", b""])
    # The count tells a value that would be a line of its own.
    if len(head) - len(head.translate(None, _ENDS_A_LINE)) != 2 * len(lines) + 2:
        raise httpx.LocalProtocolError("illegal byte in the request's headers")
    length = _length(acted_on)
    stream = request.stream
    is_whole = isinstance(stream, httpx.ByteStream)
    outgoing = Outgoing(
        head=head,
        body=b"".join(stream) if isinstance(stream, httpx.ByteStream) else b"",
        parts=None if is_whole else _async_stream(request),
        length=length,
        is_head=request.method == "HEAD",
        closes=acted_on.get(b"connection") == b"close",
    )
    if is_whole and len(outgoing.body) != (length or 0):
        raise httpx.LocalProtocolError("content-length is not the length of the body")
    if outgoing.parts is not None and length is None and b"transfer-encoding" not in acted_on:
        raise httpx.LocalProtocolError("a body of unknown length needs transfer-encoding: chunked")
    return outgoing


@lru_cache(maxsize=256)
def _request_line(method: str, target: bytes) -> bytes:
    """The first line; requests differ little in it. Raises httpx.LocalProtocolError."""
    if not _NAME.fullmatch(method.encode()) or not _TARGET.fullmatch(target):
        raise httpx.LocalProtocolError("illegal byte in the request's method or target")
    return method.encode() + b" " + target + b" HTTP/1.1"


@lru_cache(maxsize=256)
def _lowered(name: bytes) -> bytes:
    """A header's name in lower case; all come again. Raises httpx.LocalProtocolError."""
    if not _NAME.fullmatch(name):
        raise httpx.LocalProtocolError("illegal byte in a header's name")
    return name.lower()


def _acted_on(fields: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Those headers that say where a request goes and ends. Raises httpx.LocalProtocolError."""
    acted_on: dict[bytes, bytes] = {}
    for name, value in fields:
        lowered = _lowered(name)
        if lowered in _ACTED_ON:
            if lowered in acted_on and lowered != b"connection":
                raise httpx.LocalProtocolError(f"more than one {lowered.decode()} header")
            acted_on[lowered] = value.strip().lower()
    return acted_on


def _length(acted_on: dict[bytes, bytes]) -> int | None:
    """The announced length of the body; `None` without one, or when it comes in chunks."""
    announced = acted_on.get(b"content-length")
    coding = acted_on.get(b"transfer-encoding")
    if coding is not None and (announced is not None or coding != b"chunked"):
        raise httpx.LocalProtocolError("the only transfer-encoding is chunked, without a length")
    if announced is None:
        return None
    if not announced.isdigit():
        raise httpx.LocalProtocolError("content-length is not a number")
    return int(announced)


def _async_stream(request: httpx.Request) -> httpx.AsyncByteStream:
    """The body of a request that is not all there yet."""
    if not isinstance(request.stream, httpx.AsyncByteStream):
        raise httpx.LocalProtocolError("the body is a stream that cannot be read asynchronously")
    return request.stream
