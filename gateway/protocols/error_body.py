"""Read the error that an upstream put into a body or a stream.

Takes OpenAI's shape and the other shapes seen on OpenAI-compatible servers: vLLM's flat
`{"object": "error"}`, FastAPI's `{"detail": ...}`, a bare string under `error`, Anthropic's typed
events, Google's list of one. Says what is written there; what it means is `dispatch.classify`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.protocols.lone_escapes import decode

_value = msgspec.json.Decoder(Any)

_STATUS_OF_NAME: Mapping[str, int] = {
    "authentication_error": 401,
    "bad_request": 400,
    "badrequesterror": 400,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "internal_error": 500,
    "internal_server_error": 500,
    "internalservererror": 500,
    "invalid_api_key": 401,
    "invalid_argument": 400,
    "invalid_prompt": 400,
    "invalid_request": 400,
    "invalid_request_error": 400,
    "model_not_found": 404,
    "not_found": 404,
    "not_found_error": 404,
    "notfounderror": 404,
    "overloaded": 529,
    "overloaded_error": 529,
    "permission_denied": 403,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_reached": 429,
    "request_too_large": 413,
    "resource_exhausted": 429,
    "server_error": 500,
    "service_unavailable": 503,
    "timeout_error": 504,
    "unauthenticated": 401,
    "unavailable": 503,
}
"""Statuses behind the names that error frames carry instead of one, in lower case."""


class ErrorBody(Struct, frozen=True, kw_only=True):
    """What an upstream said went wrong. Nothing of it is fit for a client before it is scrubbed."""

    message: str | None = None
    type: str | None = None
    code: str | None = None
    param: str | None = None
    status: int | None = None
    """The HTTP status that the body itself names, by number or by a well-known name."""
    is_openai_shaped: bool = False
    """Whether there was an `error` object with a message, so that its fields mean what they say."""
    inner: str | None = None
    """A provider's own words, where an aggregator wraps them."""

    @property
    def words(self) -> str:
        """All that may be searched for a provider's wording. Holds no echo of the request."""
        return "\n".join(filter(None, (self.message, self.code, self.type, self.inner)))


def read_error(body: bytes) -> ErrorBody | None:
    """The error in a JSON body; `None` when it is not JSON or holds no error we can see."""
    try:
        value = decode(_value, body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, dict):
        return _from_object(error)
    if isinstance(error, str) and error:
        return _from_object({**value, "message": value.get("message") or error})
    if value.get("object") == "error" or "message" in value:
        return _from_object(value)
    return _from_detail(value.get("detail"))


def _from_detail(detail: object) -> ErrorBody | None:
    """Read FastAPI's `detail`: a sentence, an object, or a list of complaints about fields."""
    if isinstance(detail, dict):
        return _from_object(detail)
    if isinstance(detail, list):
        # Beside its `msg` each holds the `input`, which is the client's own and stays out.
        found = [item.get("msg") for item in detail if isinstance(item, dict)]
        detail = "; ".join(text for text in found if isinstance(text, str))
    return ErrorBody(message=_text(detail)) if detail else None


def _from_object(error: Mapping[str, Any]) -> ErrorBody:
    """Read the fields, whatever their types."""
    message, kind, code = _text(error.get("message")), error.get("type"), error.get("code")
    metadata = error.get("metadata")
    return ErrorBody(
        message=message,
        type=_text(kind),
        code=_text(code),
        param=_text(error.get("param")),
        status=_status(code, error.get("status_code"), error.get("status"), kind),
        is_openai_shaped=message is not None,
        inner=_text(metadata.get("raw")) if isinstance(metadata, dict) else None,
    )


def _text(value: object) -> str | None:
    """A non-empty string as it is, anything else as nothing."""
    return value if isinstance(value, str) and value else None


def _status(*values: object) -> int | None:
    """The first error status among the values: a number, digits, or a well-known name."""
    for value in values:
        status: object = value
        if isinstance(value, str):
            is_number = len(value) == 3 and value.isdecimal()
            status = int(value) if is_number else _STATUS_OF_NAME.get(value.lower())
        if isinstance(status, int) and 400 <= status <= 599:
            return status
    return None
