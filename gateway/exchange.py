"""One request on its way, as every step of the pipeline knows it."""

from __future__ import annotations

from msgspec import Struct, field

from gateway.admission.callers import Used
from gateway.admission.reservations import Reservation
from gateway.core.caller import Caller
from gateway.core.offload import OffloadWalk
from gateway.core.reply import EmptyAnswer, Reply
from gateway.core.request import ChatRequest
from gateway.dispatch.classify import UpstreamFailure
from gateway.telemetry.access import RequestRecord
from gateway.telemetry.tracing import UNTRACED, Trace


class Exchange(Struct, kw_only=True):
    """One request on its way: what was asked, where the answer goes, what has happened so far."""

    chat: ChatRequest
    caller: Caller
    reply: Reply
    record: RequestRecord
    pin: str | None = None
    session_id: str | None = None
    """What the client calls its conversation, if it says."""
    trace: Trace = UNTRACED
    failures: list[UpstreamFailure] = field(default_factory=list)
    empty_answer: EmptyAnswer | None = None
    offload: OffloadWalk = field(default_factory=OffloadWalk)
    is_in_line: bool = False
    """Whether the attempt under way has not been sent, but waits at a gate."""
    reservation: Reservation | None = None
    """Of a caller with limits."""
    output_tokens: int = 0
    """Events with which output has come, about a token each."""

    def used(self) -> Used:
        """What it has used so far. Attempts that were answered with an error cost nothing."""
        record, failures = self.record, self.failures
        # One that has answered, or was cut off after it was sent.
        unfailed = len(record.attempts) - len(failures) - self.is_in_line
        prompts = unfailed + sum(failure.was_worked_on for failure in failures)
        return Used(
            is_sent=unfailed > 0 or any(failure.was_sent for failure in failures),
            prompts=prompts or min(self.output_tokens, 1),
            usage=record.usage,
            output_tokens=self.output_tokens,
        )
