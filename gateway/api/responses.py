"""Answers on the wire: JSON, event streams, and errors in OpenAI's shape."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.types import Send

from gateway.api.request import ClientGone
from gateway.core.limits import NO_ROOM, Room
from gateway.errors import GatewayError
from gateway.state.keys import encode_id
from gateway.telemetry.access import RequestRecord

Headers = list[tuple[bytes, bytes]]

KEEP_ALIVE = b": keep-alive\n\n"
LOOK_S = 5.0
"""How often to look for a stalled client where no comments are sent."""
JSON_TYPE = (b"content-type", b"application/json")
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class HttpReply:
    """The client's end of a request (`core.reply.Reply`), over ASGI.

    A comment may be sent while output is, or the other way round: the server takes each message
    whole before it waits for the client, so that they cannot mix.
    """

    def __init__(self, send: Send, record: RequestRecord, *, endpoint_header: bool) -> None:
        self._send = send
        self._record = record
        self._endpoint_header = endpoint_header
        self._writing = 0
        """Writes under way; more than one only when a comment meets output."""
        self._active_s = 0.0
        """When the last write began, in monotonic time: asking for the loop's costs a call to the
        kernel, for each event of each stream."""
        self._is_stalled = False
        self.started = False
        self.finished = False

    async def send_json(self, body: bytes) -> None:
        """Send a whole successful answer."""
        await self._whole(200, [], body)

    async def write(self, data: bytes) -> None:
        """Send a piece of an event stream, after the headers if they are still due."""
        self._writing += 1
        try:
            await self._open_stream()
            if data:
                self._active_s = time.monotonic()
                self._record.bytes_out += len(data)
                await self._body(data, more=True)
        finally:
            self._writing -= 1

    async def finish(self) -> None:
        """End an event stream."""
        await self._open_stream()
        self.finished = True
        await self._body(b"", more=False)

    async def fail(self, error: GatewayError) -> None:
        """Tell the client of a failure: by status while that is open, else as an error event."""
        self._record.error_type = error.code
        if self.finished:
            return
        if not self.started:
            self._record.status = error.status
            return await self._whole(error.status, error_headers(error), error_body(error))
        await self.write(b"data: " + error_body(error) + b"\n\n")
        await self.finish()

    @contextlib.asynccontextmanager
    async def kept_alive(self, interval_s: float, stall_s: float | None) -> AsyncIterator[None]:
        """Send a comment whenever nothing has been sent for the interval; 0 is never.

        The first one commits status 200. A client that takes nothing for `stall_s` raises
        `ClientGone` in the body of this context; `None` waits for it without end.
        """
        owner = asyncio.current_task()
        assert owner is not None
        keeper = asyncio.create_task(self._keep_alive(interval_s, stall_s, owner))
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_stalled:
                raise
            owner.uncancel()
            raise ClientGone from None
        finally:
            keeper.cancel()
            await asyncio.wait({keeper})

    async def _keep_alive(
        self, interval_s: float, stall_s: float | None, owner: asyncio.Task[Any]
    ) -> None:
        """Look in from time to time, so that a frame costs no more than a note of its time."""
        self._active_s = time.monotonic()
        pause_s = interval_s or LOOK_S
        try:
            while not self.finished:
                idle_s = time.monotonic() - self._active_s
                if self._writing:
                    if stall_s is not None and idle_s >= stall_s:
                        raise TimeoutError
                elif interval_s and idle_s >= interval_s:
                    async with asyncio.timeout(stall_s):
                        await self.write(KEEP_ALIVE)
                    idle_s = 0.0
                await asyncio.sleep(pause_s - idle_s if idle_s < pause_s else pause_s)
        except TimeoutError:
            self._is_stalled = True
            owner.cancel()

    async def _whole(self, status: int, headers: Headers, body: bytes) -> None:
        self.started = self.finished = True
        self._record.status = status
        self._record.bytes_out += len(body)
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, [JSON_TYPE, length, *headers])
        await self._body(body, more=False)

    async def _open_stream(self) -> None:
        if not self.started:
            self.started = True
            self._record.status = 200
            await self._start(200, STREAM_HEADERS)

    async def _start(self, status: int, headers: Headers) -> None:
        record = self._record
        own: Headers = [(b"x-request-id", record.request_id.encode())]
        if record.attempts:
            own.append((b"x-concord-attempts", str(len(record.attempts)).encode()))
        if record.endpoint and self._endpoint_header:
            own.append((b"x-concord-endpoint", encode_id(record.endpoint).encode()))
        if record.offload:
            own.append((b"x-concord-offload", record.offload.encode()))
        if record.room is not NO_ROOM:
            own += rate_limit_headers(record.room)
        message = {"type": "http.response.start", "status": status, "headers": [*headers, *own]}
        await self._send(message)

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


def rate_limit_headers(room: Room) -> Headers:
    """What is left of the caller's limits, as OpenAI tells it."""
    headers: Headers = []
    for what, left in (("requests", room.requests), ("tokens", room.tokens)):
        if left is not None:
            headers += (
                (f"x-ratelimit-limit-{what}".encode(), str(left.most).encode()),
                (f"x-ratelimit-remaining-{what}".encode(), str(left.left).encode()),
                (f"x-ratelimit-reset-{what}".encode(), duration(left.reset_ms).encode()),
            )
    return headers


def duration(ms: int) -> str:
    """Whole seconds, rounded up, as `0s`, `59s`, `6m0s` or `1h0m0s`."""
    minutes, seconds = divmod(-(-ms // 1000), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def error_body(error: GatewayError) -> bytes:
    """The error in OpenAI's JSON shape."""
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": error.type,
                "param": error.param,
                "code": error.code,
            }
        }
    )


def error_headers(error: GatewayError) -> Headers:
    """When to come again, and whether that can help."""
    headers: Headers = []
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if error.should_retry is not None:
        headers.append((b"x-should-retry", b"true" if error.should_retry else b"false"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers
