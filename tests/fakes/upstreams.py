"""Scripted upstreams behind httpx's transport interface: no sockets, every byte as told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx
from msgspec import Struct, field

from tests.fakes.holds import Hold

Step = bytes | Exception | Hold | None
"""What comes next: bytes, an error, a hold, or silence for ever."""


class Answer(Struct):
    """What one request gets: steps before the headers, the status, steps of the body."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"content-type": "text/event-stream"}
    )
    before: Sequence[Step] = ()


class Upstreams(httpx.AsyncBaseTransport):
    """Answers by location, which is the first word of the host; the last answer repeats."""

    def __init__(self, **answers: Answer | Sequence[Answer]) -> None:
        self._answers = {
            at: [given] if isinstance(given, Answer) else list(given)
            for at, given in answers.items()
        }
        self.asked: list[str] = []
        self.headers: list[httpx.Headers] = []
        """Of each request, as it came."""
        self.open = 0
        """Bodies begun and not closed."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Play the next answer of the location asked."""
        location = request.url.host.partition(".")[0]
        self.asked.append(location)
        self.headers.append(request.headers)
        answers = self._answers[location]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        async for _ in _play(answer.before):
            pass
        self.open += 1
        return httpx.Response(
            answer.status, headers=dict(answer.headers), stream=_Body(self, answer.steps)
        )


class _Body(httpx.AsyncByteStream):
    def __init__(self, upstreams: Upstreams, steps: Sequence[Step]) -> None:
        self._upstreams = upstreams
        self._steps = steps
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in _play(self._steps):
            yield part

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._upstreams.open -= 1


async def _play(steps: Sequence[Step]) -> AsyncIterator[bytes]:
    for step in steps:
        match step:
            case bytes():
                yield step
            case Exception():
                raise step
            case Hold():
                await step.wait()
            case None:
                await asyncio.Event().wait()


DONE = b"data: [DONE]\n\n"


def event(data: Any) -> bytes:
    """One event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(
    content: str | None = None, *, role: str | None = None, finish: str | None = None
) -> bytes:
    """A chunk with one choice."""
    said = {"role": role, "content": content}
    part = {name: value for name, value in said.items() if value is not None}
    choice = {"index": 0, "delta": part, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


ROLE = delta("", role="assistant")
STOP = delta(finish="stop")


def stream(*tokens: str) -> Answer:
    """A good stream."""
    return Answer([ROLE, *map(delta, tokens), STOP, DONE])


def empty_stream() -> Answer:
    """A stream that ends as it should and says nothing."""
    return Answer([ROLE, STOP, DONE])


def whole(content: str | None) -> Answer:
    """A good answer in one piece; `None` leaves it empty."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "finish_reason": "stop",
    }
    answer = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}
    return Answer([json.dumps(answer).encode()], headers={"content-type": "application/json"})


def status(code: int, message: str = "no", **headers: str) -> Answer:
    """An error in OpenAI's shape."""
    error = {"error": {"message": message, "type": "t", "param": None, "code": None}}
    return Answer(
        [json.dumps(error).encode()],
        status=code,
        headers={"content-type": "application/json", **headers},
    )


def unreachable() -> Answer:
    """No connection."""
    return Answer(before=[httpx.ConnectError("refused")])
