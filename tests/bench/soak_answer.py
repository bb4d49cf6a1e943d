"""Read one answer as strictly as can be: every piece must be this call's own, and in its place."""

from __future__ import annotations

import msgspec

from tests.bench import soak_words as words
from tests.bench.soak_words import Answer, Error


class Wrong(Exception):
    """Something in an answer does not belong there."""


class Reading:
    """An answer while it comes. The first thing that is wrong with it is raised as `Wrong`."""

    def __init__(self, request_id: str, expected_events: int, *, is_stream: bool) -> None:
        self.headers: dict[str, str] = {}
        self.events = 0
        """Events with content that have come."""
        self.error = ""
        """Status and code of the error that has come in place of the rest."""
        self._id = request_id
        self._expected_events = expected_events
        self._is_stream = is_stream
        self._status = 0
        self._rest = b""
        self._has_finished = False
        self._is_done = False

    def begin(self, status: int) -> None:
        """The head has come."""
        self._status = status
        if self.headers.get("x-request-id") != self._id:
            raise Wrong(f"x-request-id {self.headers.get('x-request-id')} in answer to {self._id}")
        expected = "text/event-stream" if self._has_events else "application/json"
        found = self.headers.get("content-type", "")
        if not found.startswith(expected):
            raise Wrong(f"{status} of type {found!r}")

    def feed(self, data: bytes) -> None:
        """A piece of the body has come."""
        self._rest += data
        if self._has_events:
            *events, self._rest = self._rest.split(b"\n\n")
            for event in events:
                self._take(event)

    def finish(self) -> None:
        """The body has come to its end."""
        if not self._has_events:
            return self._take_whole()
        if self._rest:
            raise Wrong(f"a stream ends with {self._rest[:80]!r}")
        if not (self.error or self._is_done):
            raise Wrong(f"a stream ends after {self.events} events, without [DONE] or an error")

    @property
    def _has_events(self) -> bool:
        return self._is_stream and self._status == 200

    def _take_whole(self) -> None:
        answer = self._read(self._rest)
        if self._status != 200:
            if answer.error is None:
                raise Wrong(f"{self._status} without an error: {self._rest[:80]!r}")
            return self._take_error(self._status, answer.error)
        message = answer.choices[0].message if answer.choices else None
        self._check(answer, message.content if message else None)
        self.events = 1

    def _take(self, event: bytes) -> None:
        if event.startswith(b":"):
            return  # a comment that keeps the connection alive
        if self._is_done or self.error:
            raise Wrong(f"an event after the end: {event[:80]!r}")
        data = event.removeprefix(b"data: ")
        if data == event:
            raise Wrong(f"not an event: {event[:80]!r}")
        if data == words.DONE:
            if not self._has_finished:
                raise Wrong("[DONE] before the finish")
            self._is_done = True
            return
        answer = self._read(data)
        if answer.error is not None:
            return self._take_error(200, answer.error)
        if len(answer.choices) != 1 or self._has_finished:
            raise Wrong(f"an event out of place: {data[:80]!r}")
        if answer.choices[0].finish_reason:
            if self.events != self._expected_events:
                raise Wrong(f"{self.events} of {self._expected_events} events before the finish")
            self._has_finished = True
            return
        delta = answer.choices[0].delta
        self._check(answer, delta.content if delta else None)
        self.events += 1

    def _take_error(self, status: int, error: Error) -> None:
        self.error = f"{status} {error.code}"
        retry_after = self.headers.get("retry-after")
        if error.code == "state_unavailable" and (status, retry_after) != (503, "1"):
            raise Wrong(f"state_unavailable with {status} and Retry-After {retry_after}")
        if not (error.message and error.type):
            raise Wrong(f"{self.error} without a message or a type")

    def _check(self, answer: Answer, content: str | None) -> None:
        expected = words.content_of(self._id, self.events if self._is_stream else 0)
        if answer.model != words.MODEL or content != expected:
            raise Wrong(f"{content!r} instead of {expected!r}")

    def _read(self, data: bytes) -> Answer:
        """Decode, and look for ids of others wherever they may stand."""
        if others := set(words.ID.findall(data.decode("utf-8", "replace"))) - {self._id}:
            raise Wrong(f"the answer to {self._id} holds {', '.join(others)}")
        try:
            answer = words.read_answer(data)
        except msgspec.DecodeError as error:
            raise Wrong(f"not an answer ({error}): {data[:80]!r}") from None
        if answer.error is None and answer.id != self._id:
            raise Wrong(f"an answer to {self._id} names {answer.id!r}")
        return answer
