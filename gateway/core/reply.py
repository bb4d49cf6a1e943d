"""Where an answer goes, as the pipeline sees it."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class EmptyAnswer(Struct, frozen=True):
    """An answer without output, as it came: better than none when no route is left."""

    endpoint: str
    data: bytes


class Reply(Protocol):
    """The client's end of a request. One task at a time writes the answer itself."""

    started: bool
    """Whether the status and headers have gone out: from then on a failure is an error event."""

    async def send_json(self, body: bytes) -> None:
        """Send a whole successful answer."""
        ...

    async def write(self, data: bytes) -> None:
        """Send a piece of an event stream, after the headers if they are still due.

        MUST wait while the client is slow to read.
        """
        ...

    async def finish(self) -> None:
        """End an event stream, opening it first if nothing was written."""
        ...
