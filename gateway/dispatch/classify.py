"""THE table: what a failed attempt means for its endpoint, the next attempt and the client.

Nothing else in the gateway looks at an upstream's status. The rows are read from the top and the
first that matches decides; the last one takes everything, counts against the endpoint and lets
the next route try.
"""

from __future__ import annotations

import re
from collections.abc import Container
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.core.outcome import Outcome
from gateway.core.route import Route
from gateway.dispatch.scrub import scrub
from gateway.dispatch.wordings import TOO_LONG, UNPAID
from gateway.errors import UpstreamError
from gateway.protocols.error_body import ErrorBody

if TYPE_CHECKING:
    from gateway.dispatch.send import Completion

_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
"""What a type or code may look like to be passed on."""


class Kind(StrEnum):
    """Where an attempt failed."""

    STATUS = "status"
    """The upstream answered with something other than 200."""
    ERROR_FRAME = "error_frame"
    """It answered 200 and put an error into the body or the stream."""
    CONNECT = "connect"
    """No connection: name resolution, TCP, TLS, before a byte of the request was sent."""
    TIMEOUT = "timeout"
    """It kept silent for longer than the route allows."""
    BROKEN = "broken"
    """The answer was cut off, or is not one."""
    EMPTY = "empty"
    """The answer is whole and holds nothing."""


class Verdict(Struct, frozen=True, kw_only=True):
    """One row of the table: whom it matches, and what follows."""

    kinds: Container[Kind] = frozenset({Kind.STATUS, Kind.ERROR_FRAME})
    statuses: Container[int | None] | None = None
    """`None` matches any, and none."""
    wording: re.Pattern[str] | None = None
    """What the error must say, when its status is not enough."""

    outcome: Outcome
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


_CREDENTIAL = "The upstream did not accept the gateway's credentials."
_ACCOUNT = "The gateway's account with the upstream cannot serve this request."

TABLE: tuple[Verdict, ...] = (
    # No answer at all.
    Verdict(
        kinds={Kind.CONNECT},
        outcome=Outcome.CONNECT,
        status=502,
        message="The upstream could not be reached.",
    ),
    Verdict(
        kinds={Kind.TIMEOUT},
        outcome=Outcome.FAILURE,
        status=504,
        code="upstream_timeout",
        message="The upstream did not answer in time.",
    ),
    Verdict(
        kinds={Kind.BROKEN},
        outcome=Outcome.FAILURE,
        status=502,
        message="The upstream's answer was broken off or unreadable.",
    ),
    Verdict(
        kinds={Kind.EMPTY},
        outcome=Outcome.FAILURE,
        status=502,
        message="The upstream's answer was empty.",
    ),
    # Our credential, our account.
    Verdict(
        statuses={401, 407},
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
    ),
    Verdict(
        statuses={400},
        wording=UNPAID,
        outcome=Outcome.FAILURE,
        status=502,
        code="upstream_auth_error",
        message=_ACCOUNT,
        should_retry=False,
    ),
    Verdict(
        statuses={402},
        outcome=Outcome.NEUTRAL,
        message=_ACCOUNT,
        should_retry=False,
    ),
    Verdict(
        statuses={429},
        wording=UNPAID,
        outcome=Outcome.FAILURE,
        code="insufficient_quota",
        message=_ACCOUNT,
        passes_fields=True,
        should_retry=False,
    ),
    # The request itself.
    Verdict(
        statuses={400, 404, 413, 422},
        wording=TOO_LONG,
        outcome=Outcome.NEUTRAL,
        describes_request=True,
        context_refusal=True,
        code="context_length_exceeded",
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
    Verdict(statuses={408}, outcome=Outcome.FAILURE),
    Verdict(statuses={409}, outcome=Outcome.NEUTRAL, passes_fields=True),
    Verdict(
        statuses={429},
        outcome=Outcome.FAILURE,
        code="rate_limit_exceeded",
        type="rate_limit_error",
        passes_fields=True,
    ),
    Verdict(statuses=range(500, 600), outcome=Outcome.FAILURE),
    # The rest of 4xx, and then everything.
    Verdict(statuses=range(400, 500), outcome=Outcome.NEUTRAL, status=502),
    Verdict(kinds=frozenset(Kind), outcome=Outcome.FAILURE, status=502),
)


def judge(kind: Kind, status: int | None, error: ErrorBody | None) -> Verdict:
    """The first row that matches a failure."""
    words = error.words if error is not None else ""
    for row in TABLE:
        if (
            kind in row.kinds
            and (row.statuses is None or status in row.statuses)
            and (row.wording is None or row.wording.search(words))
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
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(route.endpoint, kind, error_type)
        self.route = route
        self.kind = kind
        self.status = status
        """The upstream's HTTP status, or the one that its error frame names."""
        self.error_type = error_type
        """A short name for logs."""
        self.retry_after_s = retry_after_s
        self.completion: Completion | None = None
        """The answer as it came, when it was whole but empty."""
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
    def outcome(self) -> Outcome:
        """What it says of the endpoint's health."""
        return self._verdict.outcome

    @property
    def was_sent(self) -> bool:
        """Whether anything of the request may have left."""
        return self.kind is not Kind.CONNECT

    @property
    def was_worked_on(self) -> bool:
        """Whether the upstream has worked on the prompt, rather than answer with an error."""
        return self.kind in (Kind.TIMEOUT, Kind.BROKEN, Kind.EMPTY)

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
            retry_after_s=self.retry_after_s,
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
