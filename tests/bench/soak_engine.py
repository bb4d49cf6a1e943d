"""The engine of the soak: answers carry the id of their request, and it sees who hangs up.

`python -m tests.bench.soak_engine PORT...` serves on loopback. `GET /seen` tells what it has seen,
`GET /hangups` when each client that left was noticed to have gone.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import cast

import httptools
import uvloop
from msgspec import Struct

from tests.bench import soak_words as words
from tests.bench.machine import HOST
from tests.bench.soak_words import Answer, Choice, Message, Request

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


class Seen(Struct):
    """What the engine has seen."""

    open: int = 0
    """Connections that stand, without those of whoever asks for this."""
    busy: int = 0
    """Requests whose answer has not come to its end."""
    requests: int = 0
    repeated: int = 0
    """Requests with an id that had come before."""
    mismatched: int = 0
    """Requests whose header and body carry different ids."""
    hung_up: int = 0
    """Requests whose client left before the end."""


class Log:
    """What all connections note."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.ids: set[str] = set()
        self.hangups: dict[str, float] = {}
        """Ids of the requests whose client left, and when that was seen."""


class Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._is_control = False
        self._url = b""
        self._body = b""
        self._id = ""
        self._request: Request | None = None
        self._sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._log.seen.open += 1

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        seen = self._log.seen
        seen.open -= not self._is_control
        if self._request is None:
            return
        if self._timer:
            self._timer.cancel()
        seen.busy -= 1
        seen.hung_up += 1
        self._log.hangups[self._id] = time.monotonic()

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._body, self._id, self._sent = b"", "", 0

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() == b"x-request-id":
            self._id = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self._body += data

    def on_message_complete(self) -> None:
        """Called by the parser: a request has come whole."""
        if not self._url.endswith(words.PATH.encode()):
            return self._tell()
        request, log = words.read_request(self._body), self._log
        log.seen.requests += 1
        log.seen.busy += 1
        log.seen.repeated += self._id in log.ids
        log.seen.mismatched += request.messages[0].content != self._id
        log.ids.add(self._id)
        self._request = request
        if request.stream:
            self._transport.write(STREAM_HEAD)
        self._wait()

    def _tell(self) -> None:
        """Answer a question about what has been seen."""
        if not self._is_control:
            self._is_control = True
            self._log.seen.open -= 1
        is_long = self._url == b"/hangups"
        self._transport.write(
            _whole(words.encode(self._log.hangups if is_long else self._log.seen))
        )

    def _wait(self) -> None:
        assert self._request is not None
        work = self._request.work
        wait_s = random.uniform(work.least_ms, work.most_ms) / 1000
        if wait_s:
            self._timer = self._loop.call_later(wait_s, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Send the answer, or the next event of a stream."""
        request = self._request
        assert request is not None
        says = Message(words.content_of(self._id, self._sent), role="assistant")
        if not request.stream:
            choice = Choice(message=says, finish_reason="stop")
            answer = _whole(words.encode(Answer(self._id, words.UPSTREAM_MODEL, [choice], USAGE)))
            return self._end(answer)
        self._sent += 1
        if self._sent <= request.work.events:
            self._transport.write(self._event(Choice(delta=says)))
            return self._wait()
        end = self._event(Choice(delta=Message(), finish_reason="stop"))
        if (request.stream_options or {}).get("include_usage"):
            end += _chunk(words.encode(Answer(self._id, words.UPSTREAM_MODEL, usage=USAGE)))
        self._end(end + _chunk(words.DONE) + LAST_CHUNK)

    def _event(self, choice: Choice) -> bytes:
        return _chunk(words.encode(Answer(self._id, words.UPSTREAM_MODEL, [choice])))

    def _end(self, data: bytes) -> None:
        self._request = None
        self._log.seen.busy -= 1
        self._transport.write(data)


def _chunk(data: bytes) -> bytes:
    """An event in a chunk of its own."""
    return b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data)


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


async def serve(ports: list[int]) -> None:
    """Serve until killed."""
    loop, log = asyncio.get_running_loop(), Log()
    for port in ports:
        await loop.create_server(lambda: Connection(log), HOST, port, backlog=2048)
    await loop.create_future()


if __name__ == "__main__":
    uvloop.run(serve([int(port) for port in sys.argv[1:]]))
