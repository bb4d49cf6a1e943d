"""The shape of `quota_fetchers` in routing.yaml.

The field docs become the reference in config/README.md.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Path = Annotated[str, Meta(pattern=r"^[^\s.\[\]]+(\.[^\s.\[\]]+|\[\d{1,4}\])*$")]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Word = Annotated[str, Meta(min_length=1)]


class Usage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One usage that a provider reports, and where it stands in the answer."""

    usage_label: Annotated[Word, Meta(description="As the quota_source of a route has it.")]
    unit: Annotated[Word, Meta(description="Likewise.")]
    used: Annotated[Path, Meta(description="Path of how much is used, as `data.used`, `a[0].b`.")]
    limit: Annotated[
        Path | None,
        Meta(description="Path of how much there is (default: the limit of the route's quota)."),
    ] = None
    reset_at: Annotated[
        Path | None,
        Meta(description="Path of when it begins anew: Unix seconds or ms, or ISO 8601."),
    ] = None


class QuotaFetcher(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a provider is asked what is left of its quotas."""

    url: Annotated[str, Meta(pattern="^https?://", description="Answers JSON to a GET.")]
    usages: Annotated[
        Annotated[tuple[Usage, ...], Meta(min_length=1)], Meta(description="What it reports.")
    ]
    headers: Annotated[
        dict[str, str], Meta(description="Sent along; best with `${VARIABLE}` for what is secret.")
    ] = {}
    refresh_s: Annotated[
        Seconds | None,
        Meta(description="How often (default: as models' router_params say)."),
    ] = None
    timeout_s: Annotated[float, Meta(gt=0, le=60, description="When it is given up.")] = 10.0
