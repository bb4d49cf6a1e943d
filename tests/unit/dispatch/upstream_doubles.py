"""Doubles for upstreams: a scripted transport, and a raw scripted server on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gateway.core.request import ChatRequest
from gateway.core.route import Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.send import Dispatcher
from gateway.dispatch.stream import ChatStream, Frame
from gateway.protocols.openai_chat import read_request

Step = bytes | float | Exception | None
"""What a scripted body does next: bytes, a pause in seconds, an error, or silence for ever."""


class ScriptedBody(httpx.AsyncByteStream):
    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.closed = False
        self.exhausted = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for step in self.steps:
            match step:
                case bytes():
                    yield step
                case float():
                    await asyncio.sleep(step)
                case Exception():
                    raise step
                case None:
                    await asyncio.Event().wait()
        self.exhausted = True

    async def aclose(self) -> None:
        self.closed = True


class ScriptedTransport(httpx.AsyncBaseTransport):
    """Answers every request with one script and keeps the requests."""

    def __init__(
        self,
        *steps: Step,
        status: int = 200,
        headers: dict[str, str] | None = None,
        before: Step = b"",
    ) -> None:
        self.body = ScriptedBody(list(steps))
        self.status = status
        self.headers = headers or {"content-type": "text/event-stream"}
        self.before = before
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        async for _ in ScriptedBody([self.before]):
            pass
        return httpx.Response(self.status, headers=self.headers, stream=self.body)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """A server on a real socket whose handler gets each request after its body was read."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.port = 0
        self.connections = 0
        self.requests: list[bytes] = []
        self.hung_up = asyncio.Event()
        """Set when a client has closed a connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                await self.handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.hung_up.set()
        finally:
            writer.close()


@asynccontextmanager
async def raw_server(handler: Handler) -> AsyncIterator[RawServer]:
    server = RawServer(handler)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def make_chat(**fields: Any) -> ChatRequest:
    body = {"model": "public", "messages": [{"role": "user", "content": "hi"}], **fields}
    return read_request(json.dumps(body).encode())


def sse(*events: Any, done: bool = True) -> bytes:
    """A stream of these chunks; text stands for itself as data."""
    datas = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {data}\n\n" for data in (*datas, *(["[DONE]"] if done else []))).encode()


def delta(content: str | None = None, *, index: int = 0, finish: str | None = None) -> Any:
    """A chunk with one choice."""
    choice = {"index": index, "delta": {"content": content}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "model": "theirs", "choices": [choice]}


ROLE = {"model": "theirs", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
USAGE = {
    "model": "theirs",
    "choices": [],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
}
STREAM = make_chat(stream=True)
HELLO = (ROLE, delta("Hel"), delta("lo"), delta(finish="stop"))


async def relay(
    transport: httpx.AsyncBaseTransport, route: Route, chat: ChatRequest = STREAM
) -> tuple[ChatStream, list[Frame], UpstreamFailure | None]:
    """Read a stream to its end: the frames, and the failure it ended with."""
    frames: list[Frame] = []
    async with Dispatcher({"http1": transport}).open_stream(route, chat, request_id="r1") as stream:
        try:
            async for frame in stream:
                frames.append(frame)
        except UpstreamFailure as failure:
            return stream, frames, failure
    return stream, frames, None
