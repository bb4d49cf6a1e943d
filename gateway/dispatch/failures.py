"""Turn what went wrong into an UpstreamFailure: a response, an exception, an error frame."""

from __future__ import annotations

import math
import re
import time
from email.utils import parsedate_to_datetime

import httpx

from gateway.core.route import Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.kinds import Kind
from gateway.gates.place import UpstreamQueueWaitExpired, UpstreamSaturated
from gateway.protocols.error_body import ErrorBody, read_error

_MAX_RETRY_AFTER_MS = 86_400_000
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{0,30})?", re.ASCII)
UNSENDABLE = (httpx.InvalidURL, ValueError, OverflowError)
"""What a route's own values cause that no request can be made of: an address, a key, a body."""
_UNSENT = (
    *UNSENDABLE,
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
"""What is raised only before a byte of the request has left."""


def from_response(route: Route, response: httpx.Response, body: bytes) -> UpstreamFailure:
    """The failure in a response with a status other than 200, or in a body that is an error."""
    error = read_error(body) or _plain_text(body)
    return UpstreamFailure(
        route,
        Kind.STATUS,
        status=response.status_code,
        error=error,
        error_type=f"http_{response.status_code}",
        retry_after_ms=_retry_after_ms(response.headers),
    )


def from_error(route: Route, error: ErrorBody) -> UpstreamFailure:
    """The failure that an upstream reports inside an answer with status 200."""
    return UpstreamFailure(
        route,
        Kind.ERROR_FRAME,
        status=error.status,
        error=error,
        error_type="error_frame" if error.status is None else f"error_frame_{error.status}",
    )


def from_exception(route: Route, error: Exception) -> UpstreamFailure:
    """The failure behind an exception while a request was built or sent."""
    if isinstance(error, _UNSENT):
        kind = Kind.CONNECT
    elif isinstance(error, httpx.TimeoutException):
        kind = Kind.TIMEOUT
    else:
        kind = Kind.BROKEN
    return UpstreamFailure(route, kind, error_type=type(error).__name__)


def timed_out(route: Route, error_type: str) -> UpstreamFailure:
    """The upstream kept silent for too long; `error_type` says in which phase."""
    return UpstreamFailure(route, Kind.TIMEOUT, error_type=error_type)


def saturated(route: Route, wait: UpstreamSaturated) -> UpstreamFailure:
    """No place at the gate in front of the route."""
    if isinstance(wait, UpstreamQueueWaitExpired):
        return UpstreamFailure(route, Kind.QUEUE_WAIT, error_type="queue_wait_expired")
    return UpstreamFailure(route, Kind.SATURATED, error_type="upstream_saturated")


def waited(route: Route) -> UpstreamFailure:
    """The engine has begun no answer by the time at which the request is to go elsewhere."""
    return UpstreamFailure(route, Kind.ENGINE_WAIT, error_type="engine_wait_expired")


def broken(route: Route, error_type: str) -> UpstreamFailure:
    """The answer was cut off or is not one; `error_type` says in which way."""
    return UpstreamFailure(route, Kind.BROKEN, error_type=error_type)


def empty(route: Route) -> UpstreamFailure:
    """The answer is whole and holds nothing."""
    return UpstreamFailure(route, Kind.EMPTY, error_type="empty_answer")


def _plain_text(body: bytes) -> ErrorBody | None:
    """An error body that is a sentence and not a page."""
    text = body.decode(errors="replace").strip()
    is_text = bool(text) and text[0] not in "<{[" and "\ufffd" not in text
    return ErrorBody(message=text) if is_text else None


def _retry_after_ms(headers: httpx.Headers) -> int | None:
    """How long the upstream asks to be left alone, rounded up, at most a day.

    Takes `retry-after-ms`, and `retry-after` in seconds or as a date. A date is held against the
    upstream's own clock where it sends one. A time that is not to come is 0, nonsense is none.
    """
    value = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(value):
        return _bounded_ms(float(value))
    value = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(value):
        return _bounded_ms(float(value) * 1000)
    until = _unix_s(value)
    if until is None:
        return None
    now = _unix_s(headers.get("date", "")) or time.time()
    return _bounded_ms((until - now) * 1000)


def _bounded_ms(milliseconds: float) -> int:
    return max(0, min(math.ceil(milliseconds), _MAX_RETRY_AFTER_MS))


def _unix_s(value: str) -> float | None:
    """An HTTP date as seconds since 1970."""
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
