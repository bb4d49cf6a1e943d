"""How an attempt ended, as far as its endpoint's health is concerned."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from gateway.core.offload import OffloadReason


class Outcome(StrEnum):
    """What a settled attempt says of its endpoint. The values travel to `settle.lua`."""

    SUCCESS = "success"
    FAILURE = "failure"
    """Counts against the circuit: 5xx, 408, 429, timeouts, broken or empty answers."""
    AUTH = "auth"
    """The upstream rejected our credential (401, 407): a failure, and counted apart."""
    CONNECT = "connect"
    """No connection was made. Counts once a second replica confirms it (`lua/lib/conn.lua`)."""
    NEUTRAL = "neutral"
    """Says nothing of the endpoint: the caller's own mistake, a disconnect, an abandoned claim."""


class ErrorClass(StrEnum):
    """What kind of failure an attempt has met, in the terms of cooldowns (`core/cooldown.py`)."""

    BAD_REQUEST = "bad_request"
    AUTHENTICATION = "authentication"
    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    CONTENT_POLICY_VIOLATION = "content_policy_violation"
    INTERNAL_SERVER = "internal_server"
    """Also an answer that is none."""
    SERVICE_UNAVAILABLE = "service_unavailable"
    NOT_FOUND = "not_found"
    BAD_GATEWAY = "bad_gateway"
    PAYMENT = "payment"
    """The provider wants money from us."""
    OTHER = "other"
    """Says nothing of the endpoint to others: no connection from here, or of one key alone."""


class Failure(Protocol):
    """A failed attempt, as far as its endpoint's accounts are concerned."""

    @property
    def outcome(self) -> Outcome:
        """What it says of the endpoint's health."""
        ...

    @property
    def status(self) -> int | None:
        """The upstream's HTTP status."""
        ...

    @property
    def was_sent(self) -> bool:
        """Whether anything of the request may have left."""
        ...

    @property
    def was_worked_on(self) -> bool:
        """Whether the upstream has worked on the prompt, rather than answer with an error."""
        ...

    @property
    def wait(self) -> OffloadReason | None:
        """What it has waited for in vain, if it has done but that."""
        ...

    @property
    def error_class(self) -> ErrorClass:
        """What kind of failure it is."""
        ...

    @property
    def error_type(self) -> str:
        """A short name for logs, without spaces."""
        ...

    @property
    def retry_after_ms(self) -> int | None:
        """How long the upstream asks to be left alone; 0 where it names no time to come."""
        ...
