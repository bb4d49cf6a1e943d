"""Faults on demand: what `POST /control` takes, when a fault is due and what it does to a stream.

One fault is set at a time; setting another replaces it. A fault lets the first `after` requests
pass, then strikes `count` of them (all, without a count) until it is cleared, or each n-th of them
with `every`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gateway.engine.generate import Frame, event

KINDS = (
    "status",
    "delay_ms",
    "cut_after_tokens",
    "silent",
    "malformed_chunk",
    "error_frame",
    "empty",
    "no_done",
    "health_status",
)
"""The fields that make a fault; each fault has exactly one of them."""

OWNERS = {"body": "status", "headers": "status", "after_tokens": "error_frame"}
"""Details and the kind they belong to."""

Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


class BadControl(Exception):
    """A control body that asks for something the engine does not do; the text says what."""


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to fail, and how often."""

    status: Annotated[int, Meta(ge=200, le=599)] | None = None
    """Answer with this status at once, before a slot is taken."""
    body: Any = None
    """Its body: JSON, or a string sent as it is; by default an error in OpenAI's shape."""
    headers: dict[str, str] | None = None
    delay_ms: Positive | None = None
    """Come this much later, headers included."""
    cut_after_tokens: Whole | None = None
    """Drop the connection after so many tokens; without a stream, half-way through the body."""
    silent: bool = False
    """Never answer; a stream gets its headers first."""
    malformed_chunk: Positive | None = None
    """Break the n-th chunk (the first holds the role); without a stream, the whole JSON body."""
    error_frame: dict[str, Any] | None = None
    """Answer 200 and put this error object into it, then end without `[DONE]`."""
    after_tokens: Whole | None = None
    """How many tokens precede the error frame in a stream."""
    empty: bool = False
    """Finish with `stop` and no output."""
    no_done: bool = False
    """End a finished stream without `[DONE]`."""
    health_status: Annotated[int, Meta(ge=200, le=599)] | None = None
    """Answer `/health` with this status, and requests as ever."""
    count: Positive | None = None
    after: Whole = 0
    every: Positive | None = None


class Control(Struct, forbid_unknown_fields=True):
    """The body of `POST /control`."""

    fault: Fault


class Faults:
    """The fault that is set, and how far its counts have run."""

    def __init__(self) -> None:
        self.current: Fault | None = None
        self._seen = 0

    def set(self, body: bytes) -> Fault:
        """Set the fault that a control body asks for, or raise `BadControl` and change nothing."""
        self.current, self._seen = _parse(body), 0
        return self.current

    def clear(self) -> None:
        """Serve every later request properly."""
        self.current = None

    def take(self, *, of_health: bool = False) -> Fault | None:
        """The fault that strikes the request arriving now, if one is due. Counts the request.

        Questions after health have faults of their own.
        """
        fault = self.current
        if fault is None or of_health != (fault.health_status is not None):
            return None
        self._seen += 1
        struck, others = divmod(self._seen - fault.after, fault.every or 1)
        if struck < 1 or others or (fault.count is not None and struck > fault.count):
            return None
        return fault


def spoil(events: list[Frame], fault: Fault) -> list[Frame]:
    """The events of a stream as far as they go under `fault`."""
    if fault.silent:
        return []
    if fault.cut_after_tokens is not None:
        return _first_tokens(events, fault.cut_after_tokens)
    if fault.error_frame is not None:
        sent = _first_tokens(events, fault.after_tokens) if fault.after_tokens else []
        return [*sent, Frame(event({"error": fault.error_frame}))]
    if fault.malformed_chunk is not None:
        at = fault.malformed_chunk - 1
        return [Frame(_broken(e.data), e.paced) if n == at else e for n, e in enumerate(events)]
    return events[:-1] if fault.no_done else events


def _first_tokens(events: list[Frame], tokens: int) -> list[Frame]:
    paced = [frame for frame in events if frame.paced]
    return [*events[:1], *paced[:tokens]]


def _broken(data: bytes) -> bytes:
    return data[: len(data) // 2] + b"\n\n"


def _parse(body: bytes) -> Fault:
    try:
        fault = msgspec.json.decode(body, type=Control).fault
    except msgspec.DecodeError as problem:
        raise BadControl(f"Not a control body: {problem}.") from problem
    kinds = [kind for kind in KINDS if _is_set(fault, kind)]
    if len(kinds) != 1:
        named = " and ".join(kinds) or "none"
        raise BadControl(f"A fault is exactly one of {', '.join(KINDS)}; this body has {named}.")
    for detail, owner in OWNERS.items():
        if _is_set(fault, detail) and owner not in kinds:
            raise BadControl(f"`{detail}` belongs to a fault with `{owner}`.")
    return fault


def _is_set(fault: Fault, name: str) -> bool:
    value = getattr(fault, name)
    return value is not None and value is not False
