"""How a coordinator is set, where that is no replica's concern."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class CoordinatorSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The coordinator: one process in the cluster probes, tidies up and looks at Redis."""

    lease_s: Annotated[
        float,
        Meta(
            ge=1,
            le=86_400,
            description="Silence after which another coordinator takes over; renewed every fifth "
            "of it.",
        ),
    ] = 10.0
