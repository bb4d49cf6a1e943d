"""Relay one streamed answer and judge how it ended.

Until the first output each event is read for what the gateway must know (output, finish, usage,
error). From then on runs of plain events go on as they came, and only the others are read. The
model's name is changed to the client's. What the client never sees: comments, `[DONE]` (the caller
writes its own), a usage chunk nobody asked for, events that are not JSON.

It does not retry, hold back or keep alive; that is the caller's. What comes before the first output
is bounded, so that it can be held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
from msgspec import Raw, Struct

from gateway.core.request import ChatRequest, Usage
from gateway.core.route import Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.deadline import Deadline
from gateway.dispatch.failures import broken, empty, from_error, timed_out, waited
from gateway.protocols.error_body import ErrorBody, read_error
from gateway.protocols.openai_answer import Chunk, MalformedAnswer, read_chunk, splice_model
from gateway.protocols.openai_relay import Relay
from gateway.protocols.sse import Decoder, Event, EventTooLarge

TAIL_S = 5.0
"""How long a finished stream may take for its usage chunk and its end."""
DRAIN_S = 0.1
"""How long to wait, after `[DONE]`, for the end of the body that frees the connection for reuse."""
MAX_BYTES_BEFORE_OUTPUT = 1024 * 1024
"""How much an upstream may send that is no output: the caller holds it back for failover."""

_ONE = Raw(b"1")

MAY_BE_EMPTY = frozenset({"length", "content_filter"})
"""Finish reasons that explain an answer without output."""


def _nobody() -> None:
    """Waits for it."""


class Frame(Struct, frozen=True):
    """Events for the client that came together, one or more."""

    data: bytes
    """The bytes to write, with the blank lines."""
    output: bool
    """Whether they hold real output, as opposed to a role or a finish."""


class FirstOutput(Struct, frozen=True, kw_only=True):
    """When a stream's first output is overdue, what that means, and who waits for it."""

    route: Route
    by_s: float | None = None
    """In the loop's time; `None` is never."""
    is_engine_wait: bool = False
    """Whether the request then goes elsewhere, rather than that the upstream has failed."""
    seen: Callable[[], None] = _nobody
    """Is told when it has come, also while it is held back."""

    @classmethod
    def expected(
        cls,
        route: Route,
        by_s: float | None,
        engine_wait_s: float | None,
        seen: Callable[[], None],
    ) -> FirstOutput:
        """Of a stream that is sent now: what comes first counts."""
        if engine_wait_s is not None:
            offload_s = asyncio.get_running_loop().time() + engine_wait_s
            if by_s is None or offload_s < by_s:
                return cls(route=route, by_s=offload_s, is_engine_wait=True, seen=seen)
        return cls(route=route, by_s=by_s, seen=seen)

    def overdue(self, error_type: str) -> UpstreamFailure:
        """What has happened when it has not come in time; `error_type` says in which phase."""
        return waited(self.route) if self.is_engine_wait else timed_out(self.route, error_type)


class ChatStream:
    """The frames of one attempt. Iterate it once; it raises UpstreamFailure.

    The iteration ends normally only when every choice seen has finished and there was output, or
    a reason for none.
    """

    def __init__(
        self,
        route: Route,
        chat: ChatRequest,
        body: AsyncIterator[bytes],
        first: FirstOutput,
    ) -> None:
        self.usage: Usage | None = None
        self.finish_reasons: dict[int, str] = {}
        self.has_output = False
        self.malformed = 0
        """Events that were not JSON objects, and were left out."""
        self._route = route
        self._chat = chat
        self._body = body
        self._loop = asyncio.get_running_loop()
        self._first = first
        self._idle_s = route.timeouts.idle
        self._deadline = Deadline()
        self._decoder = Decoder()
        self._bytes_before_output = 0
        self._tail = b""
        """The beginning of an event that came behind plain ones, and has not been decoded."""
        self._has_one_choice = chat.fields.get("n", _ONE) == _ONE
        self._relay = Relay(route.upstream_model, chat.model)
        self._choices: set[int] = set()
        self._events: list[bytes] = []
        self._has_new_output = False
        self._tail_ends_s: float | None = None
        self._is_done = False
        self._failure: UpstreamFailure | None = None

    def __aiter__(self) -> AsyncIterator[Frame]:
        """Return itself: there is one iteration."""
        return self

    async def __anext__(self) -> Frame:
        """The next frame; what came before a failure comes before its exception."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if self._is_done:
                raise StopAsyncIteration
            self._advance(await self._read())
        frame = Frame(b"".join(self._events), self._has_new_output)
        self._events.clear()
        self._has_new_output = False
        return frame

    async def begin(self) -> UpstreamFailure | None:
        """Read on to the first output. Returns how the stream has failed before any, if it has.

        The iteration then raises that, unless the caller turns to another upstream.
        """
        try:
            while not (self.has_output or self._is_done or self._failure):
                self._advance(await self._read())
        except UpstreamFailure as failure:
            self._failure = failure
        return None if self.has_output else self._failure

    def close(self) -> None:
        """Stop the clock. The caller closes the response."""
        self._deadline.close()

    async def drain(self) -> None:
        """After a normal end, wait briefly for the body's, so that the connection is kept."""
        if self._is_done and self._failure is None:
            try:
                async with asyncio.timeout(DRAIN_S):
                    async for _ in self._body:
                        pass
            except (TimeoutError, httpx.HTTPError):
                return

    @property
    def _is_complete(self) -> bool:
        """Whether every choice seen has finished."""
        return bool(self.finish_reasons) and self._choices <= self.finish_reasons.keys()

    def _advance(self, chunk: bytes | None) -> None:
        """Take the next bytes, or the end, of the upstream's body."""
        if chunk is not None and self._pass_on(chunk):
            return
        rest, self._tail = self._tail + (chunk or b""), b""
        try:
            events = self._decoder.feed(rest)
            if chunk is None:
                events += self._decoder.end()
        except EventTooLarge:
            raise broken(self._route, "event_too_large") from None
        for event in events:
            self._take(event)
            if self._is_done or self._failure is not None:
                return
            if not self.has_output:
                self._bytes_before_output += event.size
                if self._bytes_before_output > MAX_BYTES_BEFORE_OUTPUT:
                    raise broken(self._route, "too_much_before_output")
        if chunk is None:
            self._finish("stream_cut")

    def _pass_on(self, chunk: bytes) -> bool:
        """Pass a run of plain events on as it came. Returns whether it is one.

        With several choices in a stream each event must be read, since all of them must finish.
        """
        if not self.has_output or not self._has_one_choice or self.finish_reasons:
            return False
        end = chunk.rfind(b"\n\n") + 2
        if end < 2 or not self._decoder.is_between_events:
            return False
        events = self._relay.pass_on(self._tail + chunk[:end])
        if events is None:
            return False
        self._tail = chunk[end:]
        self._events.append(events)
        self._has_new_output = True
        return True

    async def _read(self) -> bytes | None:
        """The next bytes, `None` at the end; an error after the finish is an end, too."""
        self._deadline.move(self._read_until_s())
        try:
            return await self._body.__anext__()
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError:
            if not self._deadline.has_passed():
                raise
            if self._is_complete:
                return None
            if self.has_output:
                raise timed_out(self._route, "idle_timeout") from None
            raise self._first.overdue("first_output_timeout") from None
        except httpx.HTTPError as error:
            if self._is_complete:
                return None
            raise broken(self._route, type(error).__name__) from error
        finally:
            self._deadline.move(None)

    def _read_until_s(self) -> float | None:
        """When the next bytes are overdue, in the loop's time."""
        if not self.has_output and not self._is_complete:
            return self._first.by_s
        now = self._loop.time()
        idle_until_s = None if self._idle_s is None else now + self._idle_s
        if not self._is_complete:
            self._tail_ends_s = None
            return idle_until_s
        if self._tail_ends_s is None:
            self._tail_ends_s = now + TAIL_S
        return self._tail_ends_s if idle_until_s is None else min(self._tail_ends_s, idle_until_s)

    def _take(self, event: Event) -> None:
        """Note what an event says and queue it for the client."""
        data = event.data
        if not data:
            return
        if data.startswith(b"[DONE]"):
            self._finish("done_without_finish")
            return
        try:
            chunk = read_chunk(data)
        except MalformedAnswer:
            self.malformed += 1
            return
        if chunk.error is not None or event.name == b"error":
            error = chunk.error or read_error(data) or ErrorBody()
            self._failure = from_error(self._route, error)
            return
        self._note(chunk)
        if chunk.usage_only and not self._chat.wants_usage:
            return
        if chunk.model is not None and chunk.model != self._chat.model:
            data = splice_model(data, self._chat.model)
        if b"\n" in data:
            data = data.replace(b"\n", b"\ndata: ")
        self._events.append(b"data: " + data + b"\n\n")
        self._has_new_output |= chunk.has_output

    def _note(self, chunk: Chunk) -> None:
        """Keep what the chunk adds to the answer as a whole."""
        self._choices.update(chunk.choices)
        self.finish_reasons.update(chunk.finish_reasons)
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.has_output and not self.has_output:
            self.has_output = True
            self._first.seen()

    def _finish(self, fault: str) -> None:
        """Judge the whole at the end of the stream; `fault` names what is wrong if it is not."""
        if not self._is_complete:
            self._failure = broken(self._route, fault)
        elif not self.has_output and MAY_BE_EMPTY.isdisjoint(self.finish_reasons.values()):
            self._failure = empty(self._route)
        self._is_done = True
