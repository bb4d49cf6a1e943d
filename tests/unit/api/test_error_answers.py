"""Every error of the tree, as a client reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route

from gateway import errors
from gateway.api.errors import LastResort, on_gateway_error, on_http_exception
from gateway.api.lifecycle import ShuttingDown
from gateway.api.responses import error_body, error_headers
from tests.fakes.calls import Call

TREE: list[tuple[errors.GatewayError, int, str, str, dict[bytes, bytes]]] = [
    (
        errors.InvalidRequest("no", param="messages"),
        400,
        "invalid_request",
        "invalid_request_error",
        {b"x-should-retry": b"false"},
    ),
    (
        errors.Unauthenticated("no"),
        401,
        "invalid_api_key",
        "authentication_error",
        {b"x-should-retry": b"false", b"www-authenticate": b"Bearer"},
    ),
    (
        errors.PermissionDenied("no"),
        403,
        "permission_denied",
        "permission_error",
        {b"x-should-retry": b"false"},
    ),
    (
        errors.ModelNotFound("x"),
        404,
        "model_not_found",
        "invalid_request_error",
        {b"x-should-retry": b"false"},
    ),
    (
        errors.RequestTooLarge("no"),
        413,
        "request_too_large",
        "invalid_request_error",
        {b"x-should-retry": b"false"},
    ),
    (
        errors.NoHealthyUpstream("no", retry_after_s=7),
        503,
        "no_healthy_upstream",
        "server_error",
        {b"retry-after": b"7"},
    ),
    (
        errors.StateUnavailable(),
        503,
        "state_unavailable",
        "server_error",
        {b"retry-after": b"1"},
    ),
    (ShuttingDown(), 503, "shutting_down", "server_error", {b"retry-after": b"1"}),
    (
        errors.UpstreamError("no", status=429, code="c", type="t", param="p", retry_after_s=0),
        429,
        "c",
        "t",
        {b"retry-after": b"0"},
    ),
    (
        errors.UpstreamError("no", status=502, code="upstream_auth_error", should_retry=False),
        502,
        "upstream_auth_error",
        "upstream_error",
        {b"x-should-retry": b"false"},
    ),
    (errors.GatewayError("no"), 500, "internal_error", "server_error", {}),
]


@pytest.mark.parametrize(
    ("error", "status", "code", "kind", "headers"), TREE, ids=[row[2] for row in TREE]
)
def test_an_error_has_openais_shape_and_says_whether_to_come_again(
    error: errors.GatewayError, status: int, code: str, kind: str, headers: dict[bytes, bytes]
) -> None:
    body = json.loads(error_body(error))
    assert body == {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.param,
            "code": code,
        }
    }
    assert error.status == status
    assert dict(error_headers(error)) == headers


def test_a_missing_model_is_named_as_the_parameter_at_fault() -> None:
    error = json.loads(error_body(errors.ModelNotFound('a"b\n')))["error"]
    assert error["param"] == "model"
    assert 'a"b\n' in error["message"]


def app() -> Starlette:
    async def refused(request: Request) -> Any:
        raise errors.PermissionDenied("This needs an admin key.")

    async def broken(request: Request) -> Any:
        raise RuntimeError("sk-secret at 10.0.0.1")

    return Starlette(
        routes=[Route("/refused", refused), Route("/broken", broken)],
        middleware=[Middleware(LastResort)],
        exception_handlers={
            errors.GatewayError: on_gateway_error,
            HTTPException: on_http_exception,
        },
    )


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/refused", 403, "permission_denied"),
        ("GET", "/nowhere", 404, "not_found"),
        ("POST", "/refused", 405, "method_not_allowed"),
        ("GET", "/broken", 500, "internal_error"),
    ],
)
async def test_errors_outside_of_chat_have_the_same_shape(
    method: str, path: str, status: int, code: str
) -> None:
    call = await Call(app(), path=path, method=method, headers={"x-request-id": "r-1"}).finished()
    assert call.status == status
    error = json.loads(call.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert "sk-secret" not in error["message"]
    assert call.headers["content-type"] == "application/json"
    assert call.headers["x-request-id"] == "r-1"
    assert ("allow" in call.headers) is (status == 405)


@pytest.mark.parametrize("host", ["[", "a b", "", "x" * 5000, "evil.com/path?"])
async def test_a_path_is_told_whatever_the_host_header_says(host: str) -> None:
    call = await Call(app(), path="/nowhere", method="GET", headers={"host": host}).finished()
    assert call.status == 404
    assert json.loads(call.body)["error"]["message"] == "GET /nowhere does not exist."


async def test_a_bug_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    await Call(app(), path="/broken", method="GET").finished()
    [record] = [r for r in caplog.records if r.getMessage() == "unexpected_error"]
    assert record.exc_info
