"""What can go wrong, as a client may see it.

    GatewayError
    ├── CallerError             the request cannot be served as it is
    │   ├── InvalidRequest      400
    │   │   └── NotFound        404  nothing is there by this name
    │   ├── Unauthenticated     401
    │   ├── PermissionDenied    403
    │   ├── ModelNotFound       404  unknown and forbidden alike
    │   └── RequestTooLarge     413
    ├── CallerLimited           429  a limit of the caller's leaves no room now
    │   └── BudgetSpent         429  its money is used up
    ├── NoHealthyUpstream       503  every endpoint is open or being probed
    ├── StateUnavailable        503  Redis is away
    └── UpstreamError           what the surfaced attempt's failure becomes

Each carries everything that the HTTP layer needs for a body and headers; it never carries a host,
a key or a prompt.
"""

from __future__ import annotations

from gateway.core.masking import mask_keys


class GatewayError(Exception):
    """An answer in the shape of an error: status, stable code, sentence for the client."""

    status = 500
    code = "internal_error"
    type = "server_error"
    should_retry: bool | None = None
    """`False` tells SDKs that a repeat cannot help; `None` leaves it to the status."""

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: int | None = None
    ) -> None:
        self.message = mask_keys(message)
        super().__init__(self.message)
        self.param = param
        self.retry_after_s = retry_after_s


class CallerError(GatewayError):
    """The request cannot be served as it is."""

    type = "invalid_request_error"
    should_retry = False


class InvalidRequest(CallerError):
    """The body or a header is wrong, or no route can take what it asks."""

    status = 400
    code = "invalid_request"


class NotFound(InvalidRequest):
    """What the request names is not there, and that is no secret."""

    status = 404
    code = "not_found"


class Unauthenticated(CallerError):
    """No key, or one we do not know."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"


class PermissionDenied(CallerError):
    """A known caller at an operator's door."""

    status = 403
    code = "permission_denied"
    type = "permission_error"


class ModelNotFound(CallerError):
    """Unknown or forbidden: byte for byte the same answer."""

    status = 404
    code = "model_not_found"

    def __init__(self, name: str) -> None:
        shown = name if len(name) <= 200 else f"{name[:200]}…"
        super().__init__(
            f"The model '{shown}' does not exist or you do not have access to it.", param="model"
        )


class RequestTooLarge(CallerError):
    """The body is over the configured cap."""

    status = 413
    code = "request_too_large"


class CallerLimited(GatewayError):
    """A limit that the caller is under leaves no room for the request.

    Without `retry_after_s` waiting is in vain: the request needs more than the limit is.
    """

    status = 429
    code = "rate_limit_exceeded"
    type = "rate_limit_error"

    def __init__(self, message: str, *, limit: str, retry_after_s: int | None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.limit = limit
        """`<scope> <name>`, as the configuration calls it; for logs."""
        if retry_after_s is None:
            self.should_retry = False


class BudgetSpent(CallerLimited):
    """A budget that the caller is under has nothing left; `retry_after_s` is when it is renewed."""

    code = "insufficient_quota"
    type = "insufficient_quota"
    should_retry = False


class NoHealthyUpstream(GatewayError):
    """Every endpoint that could serve the request is open, being probed or out of reach."""

    status = 503
    code = "no_healthy_upstream"


class UpstreamLimited(GatewayError):
    """Endpoints that could serve the request have no room left, or are paused.

    Without `retry_after_s` waiting is in vain: the request needs more than their limits are.
    """

    status = 429
    code = "rate_limit_exceeded"
    type = "rate_limit_error"

    def __init__(self, message: str, *, retry_after_s: int | None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        if retry_after_s is None:
            self.should_retry = False


class StateUnavailable(GatewayError):
    """Redis cannot be asked, so nothing can be decided."""

    status = 503
    code = "state_unavailable"

    def __init__(self, *, may_have_happened: bool = False) -> None:
        super().__init__("Routing state is unavailable; try again shortly.", retry_after_s=1)
        self.may_have_happened = may_have_happened
        """Whether the call was sent and may have taken effect, its answer lost."""


class UpstreamError(GatewayError):
    """The surfaced attempt's failure, with the status that `dispatch.classify` gives it."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        type: str = "upstream_error",
        param: str | None = None,
        retry_after_s: int | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s)
        self.status = status
        self.code = code
        self.type = type
        self.should_retry = should_retry


class ScriptBug(Exception):
    """A script refused its arguments or broke: our own fault, never repeated, never a status."""
