"""How it is written what makes an endpoint pause."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Fails = Annotated[int, Meta(ge=0, le=1_000_000)]


def _litellms_name(field: str) -> str:
    return "".join(word.title() for word in field.split("_")) + "ErrorAllowedFails"


class AllowedFailsPolicy(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=_litellms_name
):
    """Failures that are no reason to pause, by class. Each class given here is counted alone."""

    bad_request: Annotated[
        Fails | None, Meta(description="400; without a number it never is a reason.")
    ] = None
    authentication: Annotated[Fails | None, Meta(description="401.")] = None
    timeout: Annotated[Fails | None, Meta(description="408, 504, no answer in time.")] = None
    rate_limit: Annotated[Fails | None, Meta(description="429.")] = None
    content_policy_violation: Annotated[
        Fails | None,
        Meta(
            description="A refusal with the code content_policy_violation or content_filter; "
            "without a number it never is a reason."
        ),
    ] = None
    internal_server: Annotated[
        Fails | None,
        Meta(description="500 and other 5xx, an answer that breaks off or holds nothing."),
    ] = None
    service_unavailable: Annotated[Fails | None, Meta(description="503.")] = None
    not_found: Annotated[Fails | None, Meta(description="404.")] = None
    bad_gateway: Annotated[Fails | None, Meta(description="502.")] = None
