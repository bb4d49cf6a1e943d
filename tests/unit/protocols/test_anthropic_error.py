"""Our errors in Anthropic's shape."""

from __future__ import annotations

import json

import pytest

from gateway import errors
from gateway.protocols.anthropic_error import error_body


def upstream(status: int) -> errors.UpstreamError:
    return errors.UpstreamError("no", status=status, code="c")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.InvalidRequest("no", param="limit"), "invalid_request_error"),
        (errors.Unauthenticated("no"), "authentication_error"),
        (upstream(402), "billing_error"),
        (errors.PermissionDenied("no"), "permission_error"),
        (errors.ModelNotFound("m"), "not_found_error"),
        (errors.RequestTooLarge("no"), "request_too_large"),
        (upstream(422), "invalid_request_error"),
        (upstream(429), "rate_limit_error"),
        (errors.GatewayError("no"), "api_error"),
        (upstream(502), "api_error"),
        (errors.NoHealthyUpstream("no"), "overloaded_error"),
        (upstream(504), "timeout_error"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.status),
)
def test_the_type_follows_the_status(error: errors.GatewayError, kind: str) -> None:
    assert json.loads(error_body(error)) == {
        "type": "error",
        "error": {"type": kind, "message": error.message},
    }
