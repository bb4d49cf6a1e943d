"""TLS: who is trusted, what is negotiated, and that it changes nothing else."""

from __future__ import annotations

import ssl

import httpx
import pytest

from tests.contract.transport.certificates import Certificates
from tests.contract.transport.conftest import Make, Start
from tests.contract.transport.peers import (
    CHUNKED,
    OK,
    Conversation,
    answers,
    answers_once,
    echoes,
    eventually,
    fetch,
    http_chunk,
    make_request,
)

BIG = bytes(range(256)) * 16_384


async def test_a_trusted_peer_is_talked_to(
    make: Make, start: Start, certificates: Certificates
) -> None:
    transport = make(ssl_context=certificates.client())
    peer = await start(echoes, certificates.server())

    for url in (peer.url, peer.url, peer.url.replace("127.0.0.1", "localhost")):
        assert await fetch(transport, url, BIG) == (200, BIG)

    assert peer.connections == 2


@pytest.mark.parametrize("name", ["expired", "elsewhere", "unknown"])
async def test_a_bad_certificate_is_a_connect_error(
    make: Make, start: Start, certificates: Certificates, name: str
) -> None:
    transport = make(ssl_context=certificates.client())
    peer = await start(answers(OK), certificates.server(name))

    with pytest.raises(httpx.ConnectError):
        await fetch(transport, peer.url)

    assert peer.heads == []
    await eventually(lambda: peer.open == 0, "the connection was kept")


async def test_nobody_unknown_is_trusted_by_default(
    make: Make, start: Start, certificates: Certificates
) -> None:
    peer = await start(answers(OK), certificates.server())

    with pytest.raises(httpx.ConnectError):
        await fetch(make(), peer.url)

    assert peer.heads == []


async def test_names_and_protocols_are_negotiated(
    make: Make, start: Start, certificates: Certificates, kind: str
) -> None:
    names: list[str | None] = []
    protocols: list[str | None] = []

    async def script(c: Conversation) -> None:
        protocols.append(c.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await answers(OK)(c)

    context = certificates.server()
    context.sni_callback = lambda _, name, __: names.append(name)
    peer = await start(script, context)

    await fetch(make(ssl_context=certificates.client()), peer.url.replace("127.0.0.1", "localhost"))

    assert names == ["localhost"]
    # aiohttp takes the context as it is, and this one names no protocols.
    assert protocols == [None if kind == "aiohttp" else "http/1.1"]


async def test_an_older_tls_will_do(make: Make, start: Start, certificates: Certificates) -> None:
    context = certificates.server()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    peer = await start(answers(OK), context)

    assert await fetch(make(ssl_context=certificates.client()), peer.url) == (200, b"ok")


@pytest.mark.parametrize("wire", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["close", "plain"])
async def test_a_failed_handshake_is_a_connect_error(
    make: Make, start: Start, certificates: Certificates, wire: bytes
) -> None:
    async def script(c: Conversation) -> None:
        await c.reader.read(1)
        await c.send(wire)

    peer = await start(script)

    with pytest.raises(httpx.ConnectError):
        await fetch(make(ssl_context=certificates.client()), peer.url.replace("http:", "https:"))


async def test_a_cut_body_is_an_error_and_a_body_to_the_end_is_whole(
    make: Make, start: Start, certificates: Certificates
) -> None:
    transport = make(ssl_context=certificates.client())
    peer = await start(answers_once(CHUNKED + http_chunk(b"one")), certificates.server())

    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await fetch(transport, peer.url)

    peer.script = answers_once(b"HTTP/1.1 200 OK\r\n\r\nhello")
    assert await fetch(transport, peer.url) == (200, b"hello")


async def test_what_a_peer_has_been_sent_is_not_sent_again(
    make: Make, start: Start, certificates: Certificates
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(OK)
        await c.request()

    transport = make(ssl_context=certificates.client())
    peer = await start(script, certificates.server())
    await fetch(transport, peer.url)

    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await fetch(transport, peer.url)

    assert [number for number, _ in peer.heads] == [1, 1]


async def test_closing_a_response_early_closes_its_connection(
    make: Make, start: Start, certificates: Certificates
) -> None:
    async def script(c: Conversation) -> None:
        await c.request()
        await c.send(CHUNKED, http_chunk(b"one"))
        await c.wait_for_close()

    transport = make(ssl_context=certificates.client())
    peer = await start(script, certificates.server())
    response = await transport.handle_async_request(make_request(peer.url))

    await response.aclose()

    await eventually(lambda: peer.open == 0, "the peer did not see it")
