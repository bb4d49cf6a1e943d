"""The shape of a model's `offload:`, in the file and in requests of operators."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

LONGEST_WAIT_S = 86_400
Amount = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class OffloadEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route that is kept for requests which the others cannot place in time.

    While another may be used it gets no other request, whatever its weight. Of models with the
    router fixed.
    """

    route_id: Annotated[
        str, Meta(min_length=1, description="Location of the route that is kept for this.")
    ]
    wait_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=LONGEST_WAIT_S,
            description="How long a request waits for a place elsewhere, and a stream from then on "
            "for its first output.",
        ),
    ]
    engine_queue_limit: Annotated[
        Amount | None,
        Meta(
            description="Streams that an engine on this host may have before their first output; "
            "others wait in line for it (default: any number)."
        ),
    ] = None
    max_input_tokens: Annotated[
        Amount | None,
        Meta(description="Prompts estimated to be larger are not offloaded (default: all may be)."),
    ] = None
