"""Write a request as bytes, or refuse one that a peer could read as something else.

Header values and the target may hold no CR, LF or NUL, names are tokens, and the length that the
headers announce is the length of the body. What fails is an httpx.LocalProtocolError.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import httpx
from msgspec import Struct

_HEAD = re.compile(
    rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+ [\x21-\x7e\x80-\xff]+ HTTP/1\.1\r\n"
    rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [^\x00\r\n]*\r\n)*\r\n"
)
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
    url = request.url
    lines = [request.method.encode() + b" " + url.raw_path + b" HTTP/1.1"]
    acted_on: dict[bytes, bytes] = {}
    for name, value in request.headers.raw:
        if b":" in name:
            raise httpx.LocalProtocolError("colon in a header's name")
        lines.append(name + b": " + value)
        lowered = name.lower()
        if lowered in _ACTED_ON:
            if lowered in acted_on and lowered != b"connection":
                raise httpx.LocalProtocolError(f"more than one {lowered.decode()} header")
            acted_on[lowered] = value.strip().lower()
    if b"host" not in acted_on:
        lines.insert(1, b"Host: " + url.netloc)
    head = b"\r\n".join([*lines, b"", b""])
    # The count tells a value that would be a line of its own.
    if _HEAD.fullmatch(head) is None or head.count(b"\n") != len(lines) + 1:
        raise httpx.LocalProtocolError("illegal byte in the request's target or headers")
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
