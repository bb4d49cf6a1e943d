"""Send one attempt to one endpoint, whole or streamed.

1. write the body and the headers for the route
2. send, bounded by the route's timeouts
3. hand back the answer with the client's name for the model, or raise UpstreamFailure

It sends once. A caller's cancellation passes through as it is, after the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from msgspec import Struct

from gateway import __version__
from gateway.core.request import ChatRequest, Usage
from gateway.core.route import Route
from gateway.dispatch.body import AnswerTooLarge, chunks_of, close, read_answer, read_error_body
from gateway.dispatch.deadline import Deadline
from gateway.dispatch.failures import (
    UNSENDABLE,
    broken,
    empty,
    from_error,
    from_exception,
    from_response,
    timed_out,
)
from gateway.dispatch.stream import MAY_BE_EMPTY, ChatStream
from gateway.protocols.openai_answer import MalformedAnswer, read_completion, splice_model
from gateway.protocols.openai_chat import write_body
from gateway.telemetry.tracing import UNTRACED, Trace

_NOT_TRACED: Mapping[str, httpx.AsyncBaseTransport] = {}


class Completion(Struct, frozen=True, kw_only=True):
    """A whole answer, ready for the client."""

    body: bytes
    usage: Usage | None


class Dispatcher:
    """Sends each attempt over its route's transport. It does not own them.

    `traced` holds the same transports under instrumentation, for attempts that are recorded.
    """

    def __init__(
        self,
        transports: Mapping[str, httpx.AsyncBaseTransport],
        traced: Mapping[str, httpx.AsyncBaseTransport] = _NOT_TRACED,
    ) -> None:
        self._transports = transports
        self._traced = traced
        self._targets: dict[tuple[str, str], _Target] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def complete(
        self,
        route: Route,
        chat: ChatRequest,
        *,
        request_id: str,
        priority: int | None = None,
        trace: Trace = UNTRACED,
    ) -> Completion:
        """Send a request that wants its answer whole, and wait for it.

        Raises UpstreamFailure. Where the answer was whole but empty, that carries it.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # asked once: it costs a call to the kernel
        total_s = route.timeouts.total
        deadline = Deadline(self._loop)
        deadline.move(None if total_s is None else self._loop.time() + total_s)
        try:
            response = await self._send(route, chat, request_id, priority, trace)
            try:
                if response.status_code != 200:
                    body = await read_error_body(response)
                    raise from_response(route, response, body)
                body = await _read_body(route, response)
            finally:
                await close(response)
        except asyncio.CancelledError:
            if not deadline.has_passed():
                raise
            raise timed_out(route, "total_timeout") from None
        finally:
            deadline.close()
        return _completion(route, chat, body)

    @asynccontextmanager
    async def open_stream(
        self,
        route: Route,
        chat: ChatRequest,
        *,
        request_id: str,
        priority: int | None = None,
        trace: Trace = UNTRACED,
    ) -> AsyncIterator[ChatStream]:
        """Send a request that wants a stream, and give its frames once the headers are there.

        Raises UpstreamFailure. Leaving the context closes the upstream's connection at once,
        unless the stream has ended as it should.
        """
        sent_at_s = asyncio.get_running_loop().time()
        first_byte_s = route.timeouts.first_byte
        first_output_by_s = None if first_byte_s is None else sent_at_s + first_byte_s
        try:
            async with asyncio.timeout_at(first_output_by_s):
                response = await self._send(route, chat, request_id, priority, trace)
        except TimeoutError:
            raise timed_out(route, "first_byte_timeout") from None
        try:
            await _check_is_stream(route, response, first_output_by_s)
            stream = ChatStream(
                route,
                chat,
                chunks_of(response),
                first_output_by_s=first_output_by_s,
            )
            try:
                yield stream
                await stream.drain()
            finally:
                stream.close()
        finally:
            await close(response)

    async def _send(
        self,
        route: Route,
        chat: ChatRequest,
        request_id: str,
        priority: int | None,
        trace: Trace,
    ) -> httpx.Response:
        """Build the request, send it, and return the response with its body unread."""
        try:
            request = self._request(route, chat, request_id, priority, trace)
            transports = self._traced if trace.is_recorded else self._transports
            return await transports[route.transport].handle_async_request(request)
        except (httpx.HTTPError, *UNSENDABLE) as error:
            raise from_exception(route, error) from error

    def _request(
        self,
        route: Route,
        chat: ChatRequest,
        request_id: str,
        priority: int | None,
        trace: Trace,
    ) -> httpx.Request:
        """Build the request. Of the client's headers none is in it but those of its trace."""
        target = self._target(route)
        body = write_body(chat, route, priority)
        headers = [
            *target.headers,
            (b"accept", b"text/event-stream" if chat.stream else b"application/json"),
            (b"x-request-id", request_id.encode()),
            (b"content-length", b"%d" % len(body)),
        ]
        for name, value in trace.headers.items():
            headers.append((name.encode(), value.encode()))
        # Whole headers and a stream: httpx then derives nothing, which would cost most of a call.
        return httpx.Request(
            "POST",
            target.url,
            headers=headers,
            stream=httpx.ByteStream(body),
            extensions=target.extensions,
        )

    def _target(self, route: Route) -> _Target:
        """What all requests of a route have in common."""
        key = (route.model_id, route.location)
        target = self._targets.get(key)
        if target is None or target.route is not route:
            target = self._targets[key] = _Target.of(route)
        return target


class _Target(Struct, frozen=True):
    """Where a route's requests go, and what they all carry."""

    route: Route
    url: httpx.URL
    headers: tuple[tuple[bytes, bytes], ...]
    extensions: dict[str, Any]

    @classmethod
    def of(cls, route: Route) -> _Target:
        """Spell it out. A base URL without a path gets `/v1`."""
        base = httpx.URL(route.base_url)
        url = base.copy_with(path=f"{base.path.rstrip('/') or '/v1'}/chat/completions")
        headers = [
            (b"host", url.netloc),
            (b"content-type", b"application/json"),
            (b"accept-encoding", b"identity"),
            (b"user-agent", f"concord/{__version__}".encode()),
        ]
        if route.api_keys:
            headers.append((b"authorization", f"Bearer {route.api_keys[0]}".encode()))
        connect_s = route.timeouts.connect
        timeout = {"connect": connect_s, "pool": connect_s, "read": None, "write": None}
        return cls(route, url, tuple(headers), {"timeout": timeout})


async def _read_body(route: Route, response: httpx.Response) -> bytes:
    """Read a whole answer. Raises UpstreamFailure."""
    try:
        return await read_answer(response)
    except AnswerTooLarge:
        raise broken(route, "answer_too_large") from None
    except httpx.HTTPError as error:
        raise broken(route, type(error).__name__) from error


def _completion(route: Route, chat: ChatRequest, body: bytes) -> Completion:
    """Judge a whole answer. Raises UpstreamFailure when it is none."""
    try:
        answer = read_completion(body)
    except MalformedAnswer:
        raise broken(route, "malformed_answer") from None
    if answer.error is not None:
        raise from_error(route, answer.error)
    if not answer.choices:
        raise broken(route, "answer_without_choices")
    if answer.model is not None and answer.model != chat.model:
        body = splice_model(body, chat.model)
    completion = Completion(body=body, usage=answer.usage)
    if not answer.has_output and MAY_BE_EMPTY.isdisjoint(answer.finish_reasons.values()):
        failure = empty(route)
        failure.completion = completion
        raise failure
    return completion


async def _check_is_stream(route: Route, response: httpx.Response, until_s: float | None) -> None:
    """Raise the failure in a response that is not a stream; else leave its body unread."""
    if response.status_code != 200:
        raise from_response(route, response, await read_error_body(response))
    if not response.headers.get("content-type", "").startswith("application/json"):
        return
    try:
        async with asyncio.timeout_at(until_s):
            answer = read_completion(await _read_body(route, response))
    except TimeoutError:
        raise timed_out(route, "first_byte_timeout") from None
    except MalformedAnswer:
        raise broken(route, "malformed_answer") from None
    if answer.error is not None:
        raise from_error(route, answer.error)
    raise broken(route, "answer_not_streamed")
