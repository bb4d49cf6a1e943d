"""How requests go to upstream accounts: how many at once, with which keys."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.config.durations import Seconds


class UpstreamConcurrency(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many requests are under way per provider label and upstream key, in the whole cluster."""

    enabled: Annotated[bool, Meta(description="Whether there is such a limit.")] = True
    initial: Annotated[
        int, Meta(ge=0, description="What the limit begins with (0 counts as 1).")
    ] = 8
    max: Annotated[
        int, Meta(ge=0, le=100_000, description="It never rises beyond this (0 counts as 1).")
    ] = 64
    success_interval: Annotated[
        int,
        Meta(
            ge=0,
            description="It rises by one after so many answers of 200, and falls by one with each "
            "429 (0 counts as 1).",
        ),
    ] = 100
    acquire_timeout: Annotated[
        Seconds, Meta(description="How long a request waits for its turn before another route.")
    ] = 30.0


class UpstreamKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How keys toward a provider are used, where there are several or some are kept for a role."""

    mute_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long a key that was refused is left alone.")
    ] = 20.0
