"""Streams that wait: timeouts, cancellations, and what is closed when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.route import Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.kinds import Kind
from gateway.dispatch.send import Dispatcher
from tests.unit.dispatch.upstream_doubles import (
    HELLO,
    ROLE,
    STREAM,
    ScriptedTransport,
    delta,
    relay,
    sse,
)


async def test_a_peer_that_stays_after_the_finish_is_left(
    with_timeouts: Callable[..., Route],
) -> None:
    transport = ScriptedTransport(sse(*HELLO, done=False), None)

    _, frames, failure = await relay(transport, with_timeouts(idle=0.05))

    assert failure is None
    assert b"".join(frame.data for frame in frames).count(b"data: ") == 4
    assert transport.body.closed


async def test_pings_and_roles_do_not_stop_the_first_output_timer(
    with_timeouts: Callable[..., Route],
) -> None:
    pings = [step for _ in range(40) for step in (0.02, b": ping\n\n", sse(ROLE, done=False))]
    transport = ScriptedTransport(*pings)

    _, _, failure = await relay(transport, with_timeouts(first_byte=0.1))

    assert failure is not None
    assert (failure.kind, failure.error_type) == (Kind.TIMEOUT, "first_output_timeout")
    assert failure.to_client("m").status == 504
    assert not transport.body.exhausted


async def test_after_the_first_output_only_silence_counts(
    with_timeouts: Callable[..., Route],
) -> None:
    steady = [step for _ in range(10) for step in (sse(delta("x"), done=False), 0.02)]
    healthy = ScriptedTransport(*steady, sse(delta(finish="stop")))
    stalled = ScriptedTransport(sse(delta("x"), done=False), None)
    timed = with_timeouts(first_byte=0.1, idle=0.1)

    assert (await relay(healthy, timed))[2] is None
    failure = (await relay(stalled, timed))[2]

    assert failure is not None
    assert (failure.kind, failure.error_type) == (Kind.TIMEOUT, "idle_timeout")
    assert stalled.body.closed


async def test_silence_before_the_headers_is_a_timeout(with_timeouts: Callable[..., Route]) -> None:
    with pytest.raises(UpstreamFailure) as failed:
        await relay(ScriptedTransport(before=None), with_timeouts(first_byte=0.05))

    assert (failed.value.kind, failed.value.error_type) == (Kind.TIMEOUT, "first_byte_timeout")


async def test_no_timeout_means_none(with_timeouts: Callable[..., Route]) -> None:
    unbounded = with_timeouts(first_byte=None, idle=None)

    assert (await relay(ScriptedTransport(0.05, sse(*HELLO)), unbounded))[2] is None


async def test_leaving_early_closes_the_upstream(route: Route) -> None:
    transport = ScriptedTransport(sse(*HELLO, done=False), None)

    async with Dispatcher({"http1": transport}).open_stream(
        route, STREAM, request_id="r"
    ) as stream:
        await anext(aiter(stream))

    assert transport.body.closed


@pytest.mark.parametrize("steps", [(None,), (sse(*HELLO, done=False), None)])
async def test_a_cancellation_stays_one_and_closes_the_upstream(route: Route, steps: Any) -> None:
    transport = ScriptedTransport(*steps)
    task = asyncio.create_task(relay(transport, route))
    await asyncio.sleep(0.02)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert transport.body.closed


@pytest.mark.parametrize("cancelled_after_s", [0.04, 0.06], ids=["before", "after"])
async def test_a_cancellation_at_the_deadline_stays_one(
    with_timeouts: Callable[..., Route], cancelled_after_s: float
) -> None:
    loop = asyncio.get_running_loop()
    transport = ScriptedTransport(sse(ROLE, done=False), None)
    task = asyncio.create_task(relay(transport, with_timeouts(first_byte=0.05)))
    loop.call_later(cancelled_after_s, task.cancel)

    # A loop held up beyond both timers runs them one after the other, in the order of their times.
    loop.call_later(0.02, time.sleep, 0.1)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert transport.body.closed
