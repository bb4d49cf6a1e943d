"""Server-sent events, decoded as their bytes arrive.

The decoder takes any split of the stream and does work linear in its length. It knows nothing of
what the data means, and ignores `id` and `retry`.
"""

from __future__ import annotations

from msgspec import Struct

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""One generated image in base64 fits; a peer that never ends an event does not fill the memory."""

_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event is longer than the decoder's bound; the stream cannot be read any further."""


class Event(Struct, frozen=True, kw_only=True):
    """One event: what it says, and how much that took."""

    size: int
    """Its bytes, with the blank line that ends it and any blank lines before its first field."""
    data: bytes | None
    """The `data` lines joined by line feeds; `None` when there are none, as in a comment."""
    name: bytes | None = None
    """The `event` field."""


class Decoder:
    """Turns chunks of bytes into events.

    A carriage return as the last byte so far is held back until it is known whether a line feed
    follows, so that the events do not depend on how the stream was split.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._buffer = bytearray()  # from the first byte of the unfinished event
        self._line = 0  # start of the unfinished line
        self._scanned = 0  # no line ends before this, from `_line` on
        self._data: list[bytes] = []
        self._name: bytes | None = None
        self._is_blank = True  # whether the event has blank lines only
        self._is_first_line = True

    @property
    def is_between_events(self) -> bool:
        """Whether no byte of an unfinished event is held."""
        return not self._buffer

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and return the events they complete.

        Raises EventTooLarge, after which the decoder is of no more use.
        """
        self._buffer += chunk
        return self._read_lines(at_end=False)

    def end(self) -> list[Event]:
        """Return the event that the end of the stream leaves without its blank line, if any."""
        events = self._read_lines(at_end=True)
        if self._line < len(self._buffer):
            self._take_line(bytes(self._buffer[self._line :]))
            self._line = len(self._buffer)
        if not self._is_blank:
            events.append(self._finish_event(0, self._line))
        return events

    def _read_lines(self, *, at_end: bool) -> list[Event]:
        """Read every complete line of the buffer and drop the events they end."""
        buffer, events, start = self._buffer, [], 0
        while (found := self._find_line_end(at_end)) is not None:
            line_end, after = found
            if line_end > self._line:
                self._take_line(bytes(buffer[self._line : line_end]))
                self._line = self._scanned = after
                continue
            self._line = self._scanned = after
            if not self._is_blank:
                events.append(self._finish_event(start, after))
                start = after
        if len(buffer) - start > self._max_event_bytes:
            raise EventTooLarge(f"an event is longer than {self._max_event_bytes} bytes")
        del buffer[:start]
        self._line -= start
        self._scanned -= start
        return events

    def _find_line_end(self, at_end: bool) -> tuple[int, int] | None:
        """Where the line under way ends and the next one starts; `None` when not yet known."""
        buffer = self._buffer
        size = len(buffer)
        feed = buffer.find(b"\n", self._scanned)
        carriage = buffer.find(b"\r", self._scanned, size if feed < 0 else feed)
        if carriage < 0:
            if feed >= 0:
                return feed, feed + 1
            self._scanned = size
            return None
        if carriage + 1 == feed:
            return carriage, feed + 1
        if carriage + 1 < size or at_end:
            return carriage, carriage + 1
        self._scanned = carriage
        return None

    def _take_line(self, line: bytes) -> None:
        """Note what a non-empty line says."""
        self._is_blank = False
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ")

    def _finish_event(self, start: int, after: int) -> Event:
        """Build the event whose bytes end before `after`, and forget its fields."""
        if after - start > self._max_event_bytes:
            raise EventTooLarge(f"an event is longer than {self._max_event_bytes} bytes")
        event = Event(
            size=after - start,
            data=b"\n".join(self._data) if self._data else None,
            name=self._name,
        )
        self._data, self._name, self._is_blank = [], None, True
        return event
