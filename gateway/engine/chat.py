"""The engine's chat completions, as a plain ASGI app that watches its client.

1. Take the body, note it and draw the fault that strikes this request, if one is due.
2. Wait for a slot, first come first served.
3. Wait for the first token: `ttft_ms` plus the prompt at the prefill rate.
4. Send the tokens at their rate, or the whole answer when all of them would be there.

A client that leaves ends all of this at once, in whichever step it is.
"""

from __future__ import annotations

import asyncio
import time

import msgspec
from msgspec import Struct
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.engine.faults import Fault, Faults, spoil
from gateway.engine.generate import Answer, Identity, answer, completion, error, frames
from gateway.engine.load import Load
from gateway.engine.request import ChatRequest
from gateway.engine.settings import EngineSettings

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]
NO_FAULT = Fault()
NOTHING = Answer(tokens=(), finish_reason="stop")


class Received(Struct, frozen=True):
    """A request as it arrived; header names are in lower case."""

    body: bytes
    headers: dict[str, str]


class Work(Struct, frozen=True):
    """What is to be answered, and the fault that strikes it."""

    request: ChatRequest
    given: Answer
    identity: Identity
    fault: Fault


class Chat:
    """`POST /v1/chat/completions`."""

    def __init__(self, settings: EngineSettings, load: Load, faults: Faults) -> None:
        self.last: Received | None = None
        self._settings = settings
        self._load = load
        self._faults = faults
        self._served = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the client leaves first."""
        self._load.requests += 1
        body = await _body(receive)
        if body is None:
            self._load.cancelled += 1
            return
        self.last = Received(
            body,
            {name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]},
        )
        answering = asyncio.ensure_future(self._answer(body, send))
        leaving = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
            else:
                self._load.cancelled += 1
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _answer(self, body: bytes, send: Send) -> None:
        fault = self._faults.take() or NO_FAULT
        if fault.status is not None:
            await _reply(send, _failure(fault, fault.status))
            return
        try:
            request = msgspec.json.decode(body, type=ChatRequest)
        except msgspec.DecodeError as problem:
            await _reply(send, JSONResponse(error(f"Invalid request: {problem}."), 400))
            return
        async with self._load.slot():
            await asyncio.sleep((fault.delay_ms or 0) / 1000)
            work = self._work(request, fault)
            if request.stream:
                await self._stream(work, send)
            else:
                await self._whole(work, send)

    def _work(self, request: ChatRequest, fault: Fault) -> Work:
        self._served += 1
        name = self._settings.name
        identity = Identity(
            id=f"chatcmpl-{name}-{self._served}",
            created=int(time.time()),
            model=request.model,
            system_fingerprint=name,
        )
        given = NOTHING if fault.empty else answer(request, self._settings.output_tokens)
        return Work(request, given, identity, fault)

    async def _stream(self, work: Work, send: Send) -> None:
        """Send the events one by one. To return without an end makes the server hang up."""
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        if work.fault.silent:
            await asyncio.Event().wait()
        first_token_at = time.monotonic() + self._ttft_s(work.request)
        await _sleep_until(first_token_at)
        tokens = 0
        for frame in spoil(frames(work.request, work.given, work.identity), work.fault):
            if frame.paced:
                await _sleep_until(first_token_at + self._decode_s(tokens))
                tokens += 1
            await send({"type": "http.response.body", "body": frame.data, "more_body": True})
        if work.fault.cut_after_tokens is None:
            await send({"type": "http.response.body", "body": b""})

    async def _whole(self, work: Work, send: Send) -> None:
        """Send everything once all of it would be there."""
        if work.fault.silent:
            await asyncio.Event().wait()
        later_tokens = max(len(work.given.tokens) - 1, 0)
        await asyncio.sleep(self._ttft_s(work.request) + self._decode_s(later_tokens))
        response = JSONResponse(completion(work.request, work.given, work.identity))
        half = response.body[: len(response.body) // 2]
        if work.fault.cut_after_tokens is not None:
            await _start(send, response)
            await send({"type": "http.response.body", "body": half, "more_body": True})
        elif work.fault.malformed_chunk is not None:
            await _reply(send, Response(half, media_type="application/json"))
        elif work.fault.error_frame is not None:
            await _reply(send, JSONResponse({"error": work.fault.error_frame}))
        else:
            await _reply(send, response)

    def _ttft_s(self, request: ChatRequest) -> float:
        rate = self._settings.prefill_tokens_per_s
        return self._settings.ttft_ms / 1000 + (request.prompt_tokens / rate if rate else 0.0)

    def _decode_s(self, tokens: int) -> float:
        return tokens / self._settings.tokens_per_s if self._settings.tokens_per_s else 0.0


def _failure(fault: Fault, status: int) -> Response:
    body = fault.body
    if isinstance(body, str):
        return Response(body, status, fault.headers, media_type="text/plain")
    if body is None:
        body = error(f"Simulated status {status}.", type="server_error", code="simulated")
    return JSONResponse(body, status, fault.headers)


async def _body(receive: Receive) -> bytes | None:
    """The whole body, `None` if the client leaves before its end."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _sleep_until(moment: float) -> None:
    """Sleep until `moment` of the monotonic clock; yields to others even when that is past."""
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


async def _start(send: Send, response: Response) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )


async def _reply(send: Send, response: Response) -> None:
    await _start(send, response)
    await send({"type": "http.response.body", "body": response.body})
