"""What is refused before a byte of it is sent, and how a request is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from gateway.dispatch.http1.request import encode

URL = "http://h:81/v1/x?a=b"


async def parts() -> AsyncIterator[bytes]:
    for part in (b"one", b"", b"three"):
        yield part


def test_a_request_is_written_in_the_order_of_its_headers() -> None:
    request = httpx.Request("POST", URL, headers=[("X-B", "2"), ("x-a", "")], content=b"{}")

    outgoing = encode(request)

    assert outgoing.head == (
        b"POST /v1/x?a=b HTTP/1.1\r\nHost: h:81\r\nX-B: 2\r\nx-a: \r\nContent-Length: 2\r\n\r\n"
    )
    assert outgoing.body == b"{}"


def test_a_host_is_always_named() -> None:
    request = httpx.Request("GET", URL)
    del request.headers["host"]

    assert encode(request).head == b"GET /v1/x?a=b HTTP/1.1\r\nHost: h:81\r\n\r\n"


def test_a_body_is_not_copied() -> None:
    body = bytes(100)

    assert encode(httpx.Request("POST", URL, content=body)).body is body


def test_a_body_given_as_a_stream_of_one_piece_is_known() -> None:
    stream = httpx.ByteStream(b"{}")
    request = httpx.Request("POST", URL, headers={"content-length": "2"}, stream=stream)

    outgoing = encode(request)

    assert (outgoing.body, outgoing.parts) == (b"{}", None)


@pytest.mark.parametrize(
    ("headers", "wire"),
    [
        ({}, b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"),
        ({"content-length": "8"}, b"onethree"),
    ],
    ids=["chunks", "length"],
)
async def test_a_body_that_is_being_made_is_framed(headers: dict[str, str], wire: bytes) -> None:
    outgoing = encode(httpx.Request("POST", URL, headers=headers, content=parts()))

    assert b"".join([part async for part in outgoing.framed()]) == wire


@pytest.mark.parametrize("length", ["7", "9"])
async def test_a_body_that_is_not_as_long_as_it_says_is_refused(length: str) -> None:
    request = httpx.Request("POST", URL, headers={"content-length": length}, content=parts())

    with pytest.raises(httpx.LocalProtocolError):
        async for _ in encode(request).framed():
            pass


REFUSED: dict[str, list[tuple[bytes, bytes]]] = {
    "CRLF in a value": [(b"x", b"a\r\ny: b")],
    "end of the head in a value": [(b"x", b"a\r\n\r\n")],
    "LF in a value": [(b"x", b"a\ny: b")],
    "CR in a value": [(b"x", b"a\rb")],
    "NUL in a value": [(b"x", b"a\0b")],
    "CRLF in a name": [(b"x: a\r\ny", b"b")],
    "space in a name": [(b"x y", b"b")],
    "colon in a name": [(b"x: y", b"b")],
    "empty name": [(b"", b"b")],
    "two lengths": [(b"content-length", b"2"), (b"content-length", b"2")],
    "two hosts": [(b"host", b"a"), (b"host", b"b")],
    "another length": [(b"content-length", b"3")],
    "no number": [(b"content-length", b"+2")],
    "length and chunks": [(b"content-length", b"2"), (b"transfer-encoding", b"chunked")],
    "another coding": [(b"transfer-encoding", b"gzip, chunked")],
}


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED.keys())
def test_what_could_be_read_as_something_else_is_refused(
    headers: list[tuple[bytes, bytes]],
) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        encode(httpx.Request("POST", URL, headers=headers, content=b"{}"))


@pytest.mark.parametrize("method", ["GET /evil HTTP/1.1\r\nx: y\r\n\r\nGET", "G T", ""])
def test_a_method_is_a_token(method: str) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        encode(httpx.Request(method, URL))


class EvilURL(httpx.URL):
    """A URL that httpx would not have made."""

    path_sent = b""

    @property
    def raw_path(self) -> bytes:
        return self.path_sent


@pytest.mark.parametrize("path", [b"/ HTTP/1.1\r\nx: y", b"/a b", b"/\r\n", b"/\0", b""])
def test_a_target_is_one_word(path: bytes) -> None:
    request = httpx.Request("GET", URL)
    request.url = EvilURL(URL)
    request.url.path_sent = path

    with pytest.raises(httpx.LocalProtocolError):
        encode(request)


def test_a_stream_without_framing_is_refused() -> None:
    request = httpx.Request("POST", URL, content=parts())
    del request.headers["transfer-encoding"]

    with pytest.raises(httpx.LocalProtocolError):
        encode(request)


def test_a_stream_that_would_block_is_refused() -> None:
    def blocking() -> Iterator[Any]:
        yield b"x"

    with pytest.raises(httpx.LocalProtocolError):
        encode(httpx.Request("POST", URL, content=blocking()))
