"""A failed attempt without an upstream."""

from __future__ import annotations

from msgspec import Struct

from gateway.core.offload import OffloadReason
from gateway.core.outcome import ErrorClass, Outcome


class Failed(Struct, kw_only=True):
    """What admission asks of a failure; the upstream has answered with an error."""

    outcome: Outcome = Outcome.FAILURE
    status: int | None = 500
    was_sent: bool = True
    was_worked_on: bool = False
    error_class: ErrorClass = ErrorClass.INTERNAL_SERVER
    error_type: str = "http_500"
    retry_after_ms: int | None = None
    wait: OffloadReason | None = None
