"""How a limit is written, on a caller and on an endpoint."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

ZERO = {"when_zero": "leave it out for no limit; to allow nothing, take the key away"}
_ZERO = {"when_zero": "take the whole limit away for none"}
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Mode = Literal["enforce", "shadow"]
MODE = Meta(description="enforce, or shadow: count what it would refuse, and let it pass.")


class CountLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit that says more than its number."""

    limit: Annotated[Count, Meta(description="The number.", extra=_ZERO)]
    mode: Annotated[Mode, MODE] = "enforce"


class RateLimit(CountLimit, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit per minute that says more than its number."""

    window: Annotated[
        Literal["sliding", "fixed"],
        Meta(description="sliding, or fixed: a minute that begins with its first request."),
    ] = "sliding"


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the limits of callers and of endpoints are counted."""

    window_seconds: Annotated[
        float,
        Meta(ge=0.1, le=3600, description="Length of the minute that rpm and tpm are counted in."),
    ] = 60.0


class RetryBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often requests for a model may fail over, in the whole cluster: see Failover."""

    enabled: Annotated[bool, Meta(description="Whether failover has a budget.")] = True
    percent: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Second and further attempts, of the first attempts of the last half to "
            "one minute.",
        ),
    ] = 20
    floor: Annotated[
        int, Meta(ge=0, le=1_000_000, description="So many are allowed in any case.")
    ] = 3
