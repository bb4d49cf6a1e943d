"""Fixtures around the doubles of `upstream_doubles`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from gateway.core.route import Route, Timeouts, UpstreamKey
from tests.unit.dispatch.upstream_doubles import Handler, RawServer, raw_server


@pytest.fixture
def route() -> Route:
    return Route(
        model_id="public",
        location="a",
        provider="p",
        kind="vllm",
        base_url="http://upstream.invalid/v1",
        upstream_model="theirs",
        api_keys=(UpstreamKey("sekrit-key"),),
    )


@pytest.fixture
def with_timeouts(route: Route) -> Callable[..., Route]:
    def make(**values: float | None) -> Route:
        return replace(route, timeouts=Timeouts(**values))  # type: ignore[arg-type]

    return make


@pytest.fixture
async def start_server() -> AsyncIterator[Callable[[Handler], Awaitable[RawServer]]]:
    async with AsyncExitStack() as stack:

        async def start(handler: Handler) -> RawServer:
            return await stack.enter_async_context(raw_server(handler))

        yield start
