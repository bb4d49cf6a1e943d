"""A request for one token, to see how fast an endpoint is."""

from __future__ import annotations

import asyncio
import time

import msgspec
from msgspec import Struct

from gateway.core.outcome import Outcome
from gateway.core.route import Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.send import Dispatcher
from gateway.protocols.openai_chat import read_request


class Sample(Struct, frozen=True, kw_only=True):
    """How one has ended."""

    ttft_ms: int = 0
    """From sending to the first output; 0 where there was none."""
    error: str | None = None
    """Why there was none: a short name."""


async def sample(
    dispatcher: Dispatcher, route: Route, *, timeout_s: float, request_id: str
) -> Sample:
    """Ask an endpoint for one token, and time it."""
    body = {
        "model": route.model_id,
        "messages": [{"role": "user", "content": "ping"}],
        "max_tokens": 1,
        "temperature": 0,
        "stream": True,
    }
    chat = read_request(msgspec.json.encode(body))
    started_s = time.monotonic()
    try:
        async with (
            asyncio.timeout(timeout_s),
            dispatcher.open_stream(route, chat, request_id=request_id) as stream,
        ):
            async for frame in stream:
                if frame.output:
                    took_ms = round((time.monotonic() - started_s) * 1000)
                    return Sample(ttft_ms=max(took_ms, 1))
    except TimeoutError:
        return Sample(error="timeout")
    except UpstreamFailure as failure:
        is_ours = failure.outcome is Outcome.NEUTRAL
        return Sample(error=f"rejected_{failure.status}" if is_ours else failure.error_type)
    return Sample(error="no_output")
