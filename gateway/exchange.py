"""One request on its way, as every step of the pipeline knows it, and its attempts."""

from __future__ import annotations

from msgspec import Struct, field

from gateway.admission.callers import Used
from gateway.admission.claims import Claim
from gateway.admission.reservations import Reservation
from gateway.core.caller import Caller
from gateway.core.offload import OffloadWalk
from gateway.core.reply import EmptyAnswer, Reply
from gateway.core.request import ChatRequest
from gateway.dispatch.classify import UpstreamFailure
from gateway.race import Race
from gateway.telemetry.access import AttemptRecord, RequestRecord
from gateway.telemetry.tracing import UNTRACED, Step, Trace


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
    in_line: set[str] = field(default_factory=set)
    """Claims whose attempts have not been sent, but wait, or were cut off, at a gate."""
    reservation: Reservation | None = None
    """Of a caller with limits."""
    output_tokens: int = 0
    """Events with which output has come, about a token each."""
    lost_output_tokens: int = 0
    """Those of them that the client does not get, since another attempt was faster."""

    def used(self) -> Used:
        """What it has used so far. Attempts that were answered with an error cost nothing."""
        record, failures = self.record, self.failures
        # One that has answered, or was cut off after it was sent.
        unfailed = len(record.attempts) - len(failures) - len(self.in_line)
        prompts = unfailed + sum(failure.was_worked_on for failure in failures)
        return Used(
            is_sent=unfailed > 0 or any(failure.was_sent for failure in failures),
            prompts=prompts or min(self.output_tokens, 1),
            usage=record.usage,
            output_tokens=self.output_tokens,
            lost_output_tokens=self.lost_output_tokens,
        )


class Attempt(Struct, kw_only=True, eq=False):
    """One attempt of a request."""

    claim: Claim
    record: AttemptRecord
    step: Step
    """In the request's trace."""
    priority: int | None = None
    """How urgent it is to its engine; `None` where that is not to be told."""
    race: Race | None = None
    """With another attempt."""

    @property
    def is_lost(self) -> bool:
        """Whether another attempt has won. To be asked in the attempt's own task."""
        return self.race is not None and self.race.is_lost
