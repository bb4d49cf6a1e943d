"""Send one attempt to one endpoint, whole or streamed.

1. take a key of the route's that the caller may use
2. wait at the gate in front of its endpoint
3. write the body and the headers for the route
4. send, bounded by the route's timeouts, in which no wait at a gate counts
5. hand back the answer with the client's name for the model, or raise UpstreamFailure

It sends once with each key, and with another only while nothing has come that the client may have.
A caller's cancellation passes through as it is, after the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx

from gateway.core.request import ChatRequest
from gateway.core.route import Route
from gateway.dispatch.answer import Completion, check_is_stream, read_whole
from gateway.dispatch.body import chunks_of, close
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.deadline import Deadline
from gateway.dispatch.failures import (
    UNSENDABLE,
    from_exception,
    timed_out,
)
from gateway.dispatch.gating import UNBOUND, UNWATCHED, Gates, Line, Pass, Waits
from gateway.dispatch.keypool import OURSELVES, Asker, KeyPools, OnlyKey, Walk
from gateway.dispatch.request import Requests
from gateway.dispatch.stream import ChatStream, FirstOutput
from gateway.telemetry.tracing import UNTRACED, Trace

_NOT_TRACED: Mapping[str, httpx.AsyncBaseTransport] = {}


class Dispatcher:
    """Sends each attempt over its route's transport. It does not own them.

    `traced` holds the same transports under instrumentation, for attempts that are recorded.
    Without `pools` each route has but its first key, whosever request it is; without `gates`
    nothing is waited for.
    """

    def __init__(
        self,
        transports: Mapping[str, httpx.AsyncBaseTransport],
        traced: Mapping[str, httpx.AsyncBaseTransport] = _NOT_TRACED,
        pools: KeyPools | None = None,
        gates: Gates | None = None,
    ) -> None:
        self._transports = transports
        self._traced = traced
        self._pools = pools
        self._gates = gates
        self._requests = Requests()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def complete(
        self,
        route: Route,
        chat: ChatRequest,
        *,
        request_id: str,
        asker: Asker = OURSELVES,
        priority: int | None = None,
        waits: Waits = UNBOUND,
        line: Line = UNWATCHED,
        trace: Trace = UNTRACED,
    ) -> Completion:
        """Send a request that wants its answer whole, and wait for it.

        Raises UpstreamFailure. Where the answer was whole but empty, that carries it.
        """
        loop = self._loop = self._loop or asyncio.get_running_loop()
        total_s = route.timeouts.total
        by_s = None if total_s is None else loop.time() + total_s
        deadline = Deadline(loop)
        try:
            keys = await self._keys(route, asker)
            while True:
                deadline.move(None)
                asked_s = loop.time()
                key, leave = await self._next(keys, chat, waits, line, trace)
                by_s = None if by_s is None else by_s + loop.time() - asked_s
                deadline.move(by_s)
                status: int | None = None
                try:
                    response = await self._send(
                        keys.route, key, chat, request_id=request_id, priority=priority, trace=trace
                    )
                    completion = await read_whole(keys.route, chat, response)
                    status = 200
                except UpstreamFailure as failure:
                    status = failure.status or 0
                    if not await keys.rotates(failure):
                        raise
                    line.rotated(failure)
                else:
                    keys.served()
                    return completion
                finally:
                    leave.leave(status)
        except asyncio.CancelledError:
            if not deadline.has_passed():
                raise
            raise timed_out(route, "total_timeout") from None
        finally:
            deadline.close()

    @asynccontextmanager
    async def open_stream(
        self,
        route: Route,
        chat: ChatRequest,
        *,
        request_id: str,
        asker: Asker = OURSELVES,
        priority: int | None = None,
        waits: Waits = UNBOUND,
        line: Line = UNWATCHED,
        trace: Trace = UNTRACED,
    ) -> AsyncIterator[ChatStream]:
        """Send a request that wants a stream, and give its frames once the headers are there.

        With several keys to choose from that is once its first output is there. Raises
        UpstreamFailure. Leaving the context closes the upstream's connection at once, unless the
        stream has ended as it should.
        """
        loop = self._loop = self._loop or asyncio.get_running_loop()
        first_byte_s = route.timeouts.first_byte
        by_s = None if first_byte_s is None else loop.time() + first_byte_s
        keys = await self._keys(route, asker)
        while True:
            asked_s = loop.time()
            key, leave = await self._next(keys, chat, waits, line, trace)
            by_s = None if by_s is None else by_s + loop.time() - asked_s
            first = FirstOutput.expected(keys.route, by_s, waits.engine_wait_s, leave.first_output)
            response: httpx.Response | None = None
            stream: ChatStream | None = None
            status: int | None = None
            try:
                try:
                    async with asyncio.timeout_at(first.by_s):
                        response = await self._send(
                            keys.route,
                            key,
                            chat,
                            request_id=request_id,
                            priority=priority,
                            trace=trace,
                        )
                    await check_is_stream(keys.route, response, first.by_s)
                    stream = ChatStream(keys.route, chat, chunks_of(response), first)
                    failure = await stream.begin() if keys.may_rotate else None
                except TimeoutError:
                    failure = first.overdue("first_byte_timeout")
                except UpstreamFailure as failed:
                    failure = failed
                if failure is None:
                    keys.served()
                else:
                    status = failure.status or 0
                    if await keys.rotates(failure):
                        line.rotated(failure)
                        continue
                    if stream is None:
                        raise failure
                assert stream is not None
                try:
                    yield stream
                except UpstreamFailure as failed:
                    status = failed.status or 0
                    raise
                status = 200
                await stream.drain()
                return
            finally:
                await _end(stream, response, leave, status)

    async def serves(self, route: Route, role: str) -> bool:
        """Whether a caller of this role would get a key of the route now.

        Raises `StateUnavailable`.
        """
        return self._pools is None or await self._pools.serves(route, role)

    async def _next(
        self, keys: OnlyKey | Walk, chat: ChatRequest, waits: Waits, line: Line, trace: Trace
    ) -> tuple[str | None, Pass]:
        """The next key to send with, and leave to do so.

        Where one waits in vain with one key, another may have room. Raises UpstreamFailure.
        """
        has_waited = False
        while True:
            key = await keys.next()
            if self._gates is None:
                return key, Pass()
            try:
                leave = await self._gates.enter(
                    keys.route, key, is_stream=chat.stream, waits=waits, line=line, trace=trace
                )
            except UpstreamFailure as wait:
                if not keys.passes_over(wait):
                    raise
                has_waited = True
            else:
                if has_waited:  # this key's account had room at once
                    line.passed(0.0, has_place=True)
                return key, leave

    async def _keys(self, route: Route, asker: Asker) -> OnlyKey | Walk:
        """What an attempt has to send with."""
        return OnlyKey(route) if self._pools is None else await self._pools.walk(route, asker)

    async def _send(
        self,
        route: Route,
        key: str | None,
        chat: ChatRequest,
        *,
        request_id: str,
        priority: int | None,
        trace: Trace,
    ) -> httpx.Response:
        """Build the request, send it, and return the response with its body unread."""
        try:
            request = self._requests.build(
                route, key, chat, request_id=request_id, priority=priority, trace=trace
            )
            transports = self._traced if trace.is_recorded else self._transports
            return await transports[route.transport].handle_async_request(request)
        except (httpx.HTTPError, *UNSENDABLE) as error:
            raise from_exception(route, error) from error


async def _end(
    stream: ChatStream | None, response: httpx.Response | None, leave: Pass, status: int | None
) -> None:
    """Close what was sent, then give its place back, also when cancelled meanwhile."""
    if stream is not None:
        stream.close()
    try:
        if response is not None:
            await close(response)
    finally:
        leave.leave(status)
