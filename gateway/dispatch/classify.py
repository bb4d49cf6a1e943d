"""THE table: what a failed attempt means for its endpoint, the next attempt and the client.

Nothing else in the gateway looks at an upstream's status. The rows are read from the top and the
first that matches decides; the last one takes everything, counts against the endpoint and lets
the next route try.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.core.offload import OffloadReason
from gateway.core.outcome import ErrorClass, Outcome
from gateway.core.route import Route
from gateway.dispatch.kinds import KeyFault, Kind
from gateway.dispatch.scrub import scrub
from gateway.dispatch.wordings import TOO_LONG, UNPAID
from gateway.errors import UpstreamError
from gateway.protocols.error_body import ErrorBody

if TYPE_CHECKING:
    from gateway.dispatch.answer import Completion

_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
"""What a type or code may look like to be passed on."""


class Verdict(Struct, frozen=True, kw_only=True):
    """One row of the table: whom it matches, and what follows."""

    kinds: Container[Kind] = frozenset({Kind.STATUS, Kind.ERROR_FRAME})
    statuses: Container[int | None] | None = None
    """`None` matches any, and none."""
    wording: re.Pattern[str] | None = None
    """What the error must say, when its status is not enough."""
    codes: Container[str | None] | None = None
    """Which code it must have, when its status is not enough."""

    outcome: Outcome
    error_class: ErrorClass | None = None
    """`None` is that of its status."""
    describes_request: bool = False
    """Whether the error says something of the request, so that it outranks an earlier one."""
    context_refusal: bool = False
    """Whether the prompt is too long for the model's window."""
    status: int | None = None
    """What the client sees; `None` is the upstream's own."""
    code: str = "upstream_error"
    """What the client sees unless the upstream has named one and `passes_fields`."""
    type: str = "upstream_error"
    message: str | None = None
    """Said in place of the upstream's words, where those concern our account only."""
    passes_fields: bool = False
    """Whether the upstream's own type, code and param reach the client."""
    should_retry: bool | None = None
    key_fault: KeyFault | None = None
    """`None` where the request would fare alike with any key."""


_CREDENTIAL = "The upstream did not accept the gateway's credentials."
_ACCOUNT = "The gateway's account with the upstream cannot serve this request."

_WAITS: Mapping[Kind, OffloadReason] = {
    Kind.SATURATED: OffloadReason.QUEUE_WAIT,
    Kind.QUEUE_WAIT: OffloadReason.QUEUE_WAIT,
    Kind.ENGINE_WAIT: OffloadReason.ENGINE_WAIT,
}

TABLE: tuple[Verdict, ...] = (
    # A wait says nothing of the endpoint.
    Verdict(
        kinds=_WAITS,
        outcome=Outcome.NEUTRAL,
        error_class=ErrorClass.OTHER,
        status=503,
        code="upstream_saturated",
        message="The upstream is taking as many requests as it may.",
    ),
    # No key to ask with.
    Verdict(
        kinds={Kind.KEYS_RESERVED},
        outcome=Outcome.NEUTRAL,
        error_class=ErrorClass.OTHER,
        status=503,
        code="upstream_keys_reserved",
        message="The upstream's capacity for this caller is used up.",
    ),
    Verdict(
        kinds={Kind.KEYS_EXHAUSTED},
        outcome=Outcome.FAILURE,
        error_class=ErrorClass.OTHER,
        status=503,
        code="upstream_keys_exhausted",
        message="The upstream's capacity is used up.",
    ),
    # No answer at all.
    Verdict(
        kinds={Kind.CONNECT},
        outcome=Outcome.CONNECT,
        error_class=ErrorClass.OTHER,
        status=502,
        message="The upstream could not be reached.",
    ),
    Verdict(
        kinds={Kind.TIMEOUT},
        outcome=Outcome.FAILURE,
        error_class=ErrorClass.TIMEOUT,
        status=504,
        code="upstream_timeout",
        message="The upstream did not answer in time.",
    ),
    Verdict(
        kinds={Kind.BROKEN},
        outcome=Outcome.FAILURE,
        status=502,
        message="The upstream's answer was broken off or unreadable.",
        key_fault=KeyFault.TRANSIENT,
    ),
    Verdict(
        kinds={Kind.EMPTY},
        outcome=Outcome.FAILURE,
        status=502,
        message="The upstream's answer was empty.",
    ),
    # Our credential, our account.
    Verdict(
        statuses={401},
        outcome=Outcome.AUTH,
        status=502,
        code="upstream_auth_error",
        message=_CREDENTIAL,
        should_retry=False,
        key_fault=KeyFault.KEY,
    ),
    Verdict(
        statuses={407},
        outcome=Outcome.AUTH,
        status=502,
        code="upstream_auth_error",
        message=_CREDENTIAL,
        should_retry=False,
    ),
    Verdict(
        statuses={403},
        outcome=Outcome.NEUTRAL,
        status=502,
        code="upstream_auth_error",
        message=_CREDENTIAL,
        should_retry=False,
        key_fault=KeyFault.KEY,
    ),
    Verdict(
        statuses={400},
        wording=UNPAID,
        outcome=Outcome.FAILURE,
        error_class=ErrorClass.PAYMENT,
        status=502,
        code="upstream_auth_error",
        message=_ACCOUNT,
        should_retry=False,
        key_fault=KeyFault.KEY,
    ),
    Verdict(
        statuses={402},
        outcome=Outcome.NEUTRAL,
        message=_ACCOUNT,
        should_retry=False,
        key_fault=KeyFault.KEY,
    ),
    Verdict(
        statuses={429},
        wording=UNPAID,
        outcome=Outcome.FAILURE,
        code="insufficient_quota",
        message=_ACCOUNT,
        passes_fields=True,
        should_retry=False,
        key_fault=KeyFault.KEY,
    ),
    # The request itself.
    Verdict(
        statuses={400, 404, 413, 422},
        wording=TOO_LONG,
        outcome=Outcome.NEUTRAL,
        error_class=ErrorClass.BAD_REQUEST,
        describes_request=True,
        context_refusal=True,
        code="context_length_exceeded",
        type="invalid_request_error",
        passes_fields=True,
        should_retry=False,
    ),
    Verdict(
        statuses={400, 404, 413, 422},
        codes={"content_policy_violation", "content_filter"},
        outcome=Outcome.NEUTRAL,
        error_class=ErrorClass.CONTENT_POLICY_VIOLATION,
        describes_request=True,
        type="invalid_request_error",
        passes_fields=True,
        should_retry=False,
    ),
    Verdict(
        statuses={400, 404, 413, 422},
        outcome=Outcome.NEUTRAL,
        describes_request=True,
        type="invalid_request_error",
        passes_fields=True,
        should_retry=False,
    ),
    # Overload and faults.
    Verdict(statuses={408}, outcome=Outcome.FAILURE, key_fault=KeyFault.TRANSIENT),
    Verdict(statuses={425}, outcome=Outcome.NEUTRAL, status=502, key_fault=KeyFault.TRANSIENT),
    Verdict(statuses={409}, outcome=Outcome.NEUTRAL, passes_fields=True),
    Verdict(
        statuses={429},
        outcome=Outcome.FAILURE,
        code="rate_limit_exceeded",
        type="rate_limit_error",
        passes_fields=True,
        key_fault=KeyFault.KEY,
    ),
    Verdict(statuses=range(500, 600), outcome=Outcome.FAILURE, key_fault=KeyFault.TRANSIENT),
    # The rest of 4xx, and then everything.
    Verdict(statuses=range(400, 500), outcome=Outcome.NEUTRAL, status=502),
    Verdict(
        kinds={Kind.ERROR_FRAME},
        statuses={None},
        outcome=Outcome.FAILURE,
        status=502,
        key_fault=KeyFault.TRANSIENT,
    ),
    Verdict(kinds=frozenset(Kind), outcome=Outcome.FAILURE, status=502),
)

_UNSENT = frozenset(
    {Kind.CONNECT, Kind.KEYS_RESERVED, Kind.KEYS_EXHAUSTED, Kind.SATURATED, Kind.QUEUE_WAIT}
)

_CLASS_OF_STATUS: Mapping[int | None, ErrorClass] = {
    400: ErrorClass.BAD_REQUEST,
    401: ErrorClass.AUTHENTICATION,
    402: ErrorClass.PAYMENT,
    404: ErrorClass.NOT_FOUND,
    408: ErrorClass.TIMEOUT,
    429: ErrorClass.RATE_LIMIT,
    502: ErrorClass.BAD_GATEWAY,
    503: ErrorClass.SERVICE_UNAVAILABLE,
    504: ErrorClass.TIMEOUT,
}


def judge(kind: Kind, status: int | None, error: ErrorBody | None) -> Verdict:
    """The first row that matches a failure."""
    words = error.words if error is not None else ""
    for row in TABLE:
        if (
            kind in row.kinds
            and (row.statuses is None or status in row.statuses)
            and (row.wording is None or row.wording.search(words))
            and (row.codes is None or (error is not None and error.code in row.codes))
        ):
            return row
    raise AssertionError("the last row of the table matches everything")


class UpstreamFailure(Exception):
    """One attempt failed. Says what that means; its own text is for logs and holds no secrets."""

    def __init__(
        self,
        route: Route,
        kind: Kind,
        *,
        error_type: str,
        status: int | None = None,
        error: ErrorBody | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(route.endpoint, kind, error_type)
        self.route = route
        self.kind = kind
        self._status = status
        self.error_type = error_type
        """A short name for logs."""
        self.retry_after_ms = retry_after_ms
        """How long the upstream asks to be left alone; 0 where it names no time to come."""
        self.completion: Completion | None = None
        """The answer as it came, when it was whole but empty."""
        self.is_of_key = False
        """Whether it concerns the key alone, since the endpoint would serve another one now."""
        self._error = error
        self._verdict = judge(kind, status, error)

    def __str__(self) -> str:
        """The endpoint and what happened there, in words fit for an operator's log."""
        return f"{self.endpoint}: {self.error_type}: {self._message(self.route.model_id)}"

    @property
    def endpoint(self) -> str:
        """Where it failed."""
        return self.route.endpoint

    @property
    def status(self) -> int | None:
        """The upstream's HTTP status, or the one that its error frame names."""
        return self._status

    @property
    def outcome(self) -> Outcome:
        """What it says of the endpoint's health."""
        return Outcome.NEUTRAL if self.is_of_key else self._verdict.outcome

    @property
    def error_class(self) -> ErrorClass:
        """What kind of failure it is to its endpoint's cooldown."""
        if self.is_of_key:
            return ErrorClass.OTHER
        is_callers = self.status is not None and 400 <= self.status < 500
        usual = ErrorClass.OTHER if is_callers else ErrorClass.INTERNAL_SERVER
        return self._verdict.error_class or _CLASS_OF_STATUS.get(self.status, usual)

    @property
    def key_fault(self) -> KeyFault | None:
        """What it says of the key that was used."""
        return self._verdict.key_fault

    @property
    def was_sent(self) -> bool:
        """Whether anything of the request may have left."""
        return self.kind not in _UNSENT

    @property
    def was_worked_on(self) -> bool:
        """Whether the upstream has worked on the prompt, rather than answer with an error."""
        return self.kind in (Kind.TIMEOUT, Kind.BROKEN, Kind.EMPTY, Kind.ENGINE_WAIT)

    @property
    def wait(self) -> OffloadReason | None:
        """What it has waited for in vain, if it has: nothing is remembered of that."""
        return _WAITS.get(self.kind)

    @property
    def was_cut(self) -> bool:
        """Whether it would have waited on, had the request nowhere else to go."""
        return self.kind in (Kind.QUEUE_WAIT, Kind.ENGINE_WAIT)

    @property
    def describes_request(self) -> bool:
        """Whether it says something of the request, so that it outranks an earlier failure."""
        return self._verdict.describes_request

    @property
    def context_refusal(self) -> bool:
        """Whether the prompt is too long for this route's window."""
        return self._verdict.context_refusal

    def to_client(self, chat_model: str) -> UpstreamError:
        """The error a client gets to see that asked for `chat_model`."""
        verdict, error = self._verdict, self._error
        code, kind, param = verdict.code, verdict.type, None
        if verdict.passes_fields and error is not None and error.is_openai_shaped:
            code = _name_or(error.code, code)
            kind = _name_or(error.type, kind)
            param = scrub(error.param or "", self.route, chat_model) or None
        return UpstreamError(
            self._message(chat_model),
            status=verdict.status or self.status or 502,
            code=code,
            type=kind,
            param=param,
            retry_after_s=None if self.retry_after_ms is None else -(-self.retry_after_ms // 1000),
            should_retry=verdict.should_retry,
        )

    def _message(self, model: str) -> str:
        """What went wrong: our words, else the upstream's made fit to show, else its status."""
        if self._verdict.message is not None:
            return self._verdict.message
        words = self._error.message if self._error is not None else None
        generic = f"The upstream answered with status {self.status}."
        return scrub(words or "", self.route, model) or (
            generic if self.status is not None else "The upstream reported an error."
        )


def _name_or(value: str | None, default: str) -> str:
    """A name from upstream if it looks like one."""
    return value if value is not None and _NAME.fullmatch(value) else default
