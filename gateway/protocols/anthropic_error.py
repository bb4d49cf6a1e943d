"""Our errors as Anthropic's clients read them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.errors import GatewayError

_TYPE_OF_STATUS: Mapping[int, str] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(error: GatewayError) -> bytes:
    """The error in Anthropic's JSON shape."""
    usual = "invalid_request_error" if error.status < 500 else "api_error"
    kind = _TYPE_OF_STATUS.get(error.status, usual)
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": error.message}})
