"""The trace of a request, as the rest of the gateway sees it.

    the request       POST /v1/chat/completions
    ├── admit         who was considered, who dropped out and why, what was drawn
    ├── attempt       one try on one endpoint, over it the HTTP call
    │   └── gate      how long it has stood in line before
    └── settle        what became of the claim; often after the answer

What is here records nothing: it is for requests that were not sampled, and for all of them where
no traces are exported. `spans.py` records. OpenTelemetry is not imported before it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gateway.core.outcome import Outcome
from gateway.core.request import Usage
from gateway.core.route import Route
from gateway.telemetry.access import RequestRecord

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z"
)
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}\Z")


class Step:
    """A part of a request's way, as a context. What has been learnt in it is told to it."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End; with an error when one passes through."""

    def admitted(self, route: Route, numbers: Sequence[float], *, is_probe: bool, pin: str) -> None:
        """A claim was granted, drawn with these numbers; `pin` is what became of the caller's."""

    def dropped(self, *reasons: Mapping[str, str]) -> None:
        """These candidates were dropped: location to reason."""

    def stale(self) -> None:
        """Nothing was decided: the model's overrides have changed, and another decision follows."""

    def queued(self, waited_s: float) -> None:
        """The attempt stood in line for so long; 0 where it passed at once."""

    def first_output(self) -> None:
        """The attempt has its first output."""

    def used(self, usage: Usage) -> None:
        """The attempt has used so much, as its upstream says."""

    def turned(self, circuit: str) -> None:
        """The endpoint's circuit was turned to this; "" when it was not."""


_UNRECORDED = Step()


class Trace:
    """What a request carries of its trace."""

    __slots__ = ("headers", "id")
    is_recorded = False

    def __init__(self, trace_id: str | None, headers: Mapping[str, str]) -> None:
        self.id = trace_id
        """32 hex digits, or `None` outside of any trace."""
        self.headers = headers
        """What goes upstream with an attempt, unless its transport writes it."""

    def admitting(
        self, model_id: str, attempt: int, order: str, candidates: Sequence[tuple[str, float]]
    ) -> Step:
        """The decision on an attempt, counted from 1, between candidates: location and weight.

        `order` is how they are taken (`lua/admit.lua`).
        """
        return _UNRECORDED

    def attempting(self, route: Route, record: RequestRecord) -> Step:
        """An attempt, which is the last one of the record. HTTP calls made in it are part of it."""
        return _UNRECORDED

    def gating(self, route: Route) -> Step:
        """The way through the gate in front of an endpoint, part of the attempt."""
        return _UNRECORDED

    def settling(self, route: Route, outcome: Outcome) -> Step:
        """The end of an attempt's claim. May begin after the request's end."""
        return _UNRECORDED

    def end(self, record: RequestRecord) -> None:
        """The request has ended."""


UNTRACED = Trace(None, {})


class Tracer:
    """Begins traces. This one records none, and passes on what clients send."""

    provider: TracerProvider | None = None
    """Where instrumented parts get their tracers from; `None` when nothing is recorded."""

    def begin(self, headers: Mapping[str, str], path: str) -> Trace:
        """The trace of a request that has just come; `headers` by lower-case name."""
        return received(headers)

    async def close(self) -> None:
        """Send what has not been sent yet, as far as that can be done in a moment."""


def received(headers: Mapping[str, str]) -> Trace:
    """The trace that the client has begun, to be passed on as it came; else none."""
    parent = headers.get("traceparent")
    if parent is None:
        return UNTRACED
    match = _TRACEPARENT.match(parent)
    if not match:
        return UNTRACED
    carried = {"traceparent": parent}
    state = headers.get("tracestate", "")
    if _TRACESTATE.match(state):
        carried["tracestate"] = state
    return Trace(match[1], carried)
