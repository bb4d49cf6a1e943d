"""Who may come in, and how what they bring is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from starlette.requests import Request

from gateway.api.request import ClientGone, headers_of, peer_of, read_body
from gateway.auth.keys import Authenticator
from gateway.core.caller import Caller
from gateway.errors import InvalidRequest, PermissionDenied

MAX_BODY_BYTES = 65_536

T = TypeVar("T")


async def admin(request: Request, authenticator: Authenticator) -> Caller:
    """The admin who asks.

    Raises `Unauthenticated`, `PermissionDenied`, and `StateUnavailable` for a key that may be a
    made one while Redis is away.
    """
    caller = await authenticator.caller(headers_of(request.scope), peer_of(request.scope))
    if not caller.is_admin:
        raise PermissionDenied("This needs an admin key.")
    return caller


async def read_json(request: Request, shape: type[T]) -> T:
    """The body as a Struct. Raises `InvalidRequest`, naming a field that is wrong or unknown."""
    try:
        body = await read_body(request.receive, headers_of(request.scope), MAX_BODY_BYTES)
        return msgspec.json.decode(body, type=shape)
    except ClientGone:
        raise InvalidRequest("The request ended before its body did.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The body is not as it must be: {error}.") from None


def read_query(values: Mapping[str, object], shape: type[T]) -> T:
    """Parameters as a Struct, numbers read from text. Raises `InvalidRequest` as `read_json`."""
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The parameters are not as they must be: {error}.") from None
