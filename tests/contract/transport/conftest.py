"""Every test here runs on each transport and on each event loop, and must leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import uvloop

from gateway.dispatch.aiohttp_transport import make_aiohttp_transport
from gateway.dispatch.http1 import Http1Transport
from tests.contract.transport.certificates import Certificates, make_certificates
from tests.contract.transport.peers import Peer, Script, eventually, open_sockets

Make = Callable[..., httpx.AsyncBaseTransport]
Start = Callable[..., Awaitable[Peer]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(params=["http1", "aiohttp"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which transport a test runs on."""
    return str(request.param)


@pytest.fixture(scope="session")
def quick_collections() -> Iterator[None]:
    """Spare what was there before the tests from the garbage collection after each of them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
async def nothing_left(quick_collections: None) -> AsyncIterator[None]:
    """Fail a test that leaves a socket open or an error unseen."""
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    before = open_sockets()
    yield
    gc.collect()
    await eventually(lambda: open_sockets() <= before, "sockets were left open")
    assert unseen == []


@pytest.fixture
async def make(nothing_left: None, kind: str) -> AsyncIterator[Make]:
    """Make a transport of the kind under test; it is closed after the test."""
    async with AsyncExitStack() as stack:

        def make(**options: Any) -> httpx.AsyncBaseTransport:
            made = (
                Http1Transport(**options) if kind == "http1" else make_aiohttp_transport(**options)
            )
            stack.push_async_callback(made.aclose)
            return made

        yield make


@pytest.fixture
async def transport(make: Make, plain_context: ssl.SSLContext) -> httpx.AsyncBaseTransport:
    """A transport of the kind under test."""
    return make(ssl_context=plain_context)


@pytest.fixture
async def make_http1(nothing_left: None) -> AsyncIterator[Callable[..., Http1Transport]]:
    """Make our own transport, for what only that one promises."""
    async with AsyncExitStack() as stack:

        def make(**options: Any) -> Http1Transport:
            made = Http1Transport(**options)
            stack.push_async_callback(made.aclose)
            return made

        yield make


@pytest.fixture
async def start(nothing_left: None) -> AsyncIterator[Start]:
    """Start a peer with a script; it is stopped after the test."""
    async with AsyncExitStack() as stack:

        async def start(script: Script, ssl_context: ssl.SSLContext | None = None) -> Peer:
            peer = Peer(script)
            await peer.start(ssl_context)
            stack.push_async_callback(peer.aclose)
            return peer

        yield start


@pytest.fixture(scope="session")
def plain_context() -> ssl.SSLContext:
    """For tests without TLS; loading the usual authorities takes longer than most of them."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority and what it signed, good and bad."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))
