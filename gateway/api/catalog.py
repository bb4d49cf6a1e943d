"""What `GET /v1/models` shows, encoded ahead of the requests for it, in OpenAI's and Anthropic's
shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.core.route import Model
from gateway.errors import InvalidRequest

USUAL_LIMIT, LARGEST_LIMIT = 20, 1000
RELEASED_AT = "1970-01-01T00:00:00Z"
"""Anthropic's clients expect a release date; the epoch stands for an unknown one."""


class Page(Struct, frozen=True, kw_only=True):
    """Which part of a list Anthropic's clients ask for."""

    limit: int = USUAL_LIMIT
    after_id: str | None = None
    before_id: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Page:
        """Read the query of a request. Raises `InvalidRequest`."""
        limit = query.get("limit", str(USUAL_LIMIT))
        if not re.fullmatch(r"[0-9]{1,4}", limit) or not 1 <= int(limit) <= LARGEST_LIMIT:
            raise InvalidRequest(f"limit: must be a number from 1 to {LARGEST_LIMIT}.")
        after_id, before_id = query.get("after_id"), query.get("before_id")
        if after_id and before_id:
            raise InvalidRequest("before_id: cannot be given together with after_id.")
        return cls(limit=int(limit), after_id=after_id or None, before_id=before_id or None)


class Entry(Struct, frozen=True):
    """One model in both shapes, and its id as JSON."""

    id: bytes
    openai: bytes
    anthropic: bytes

    @classmethod
    def of(cls, model: Model, created_s: int) -> Entry:
        """Encode a model. `created_s` is Unix time."""
        return cls(
            msgspec.json.encode(model.id),
            msgspec.json.encode(_openai(model, created_s)),
            msgspec.json.encode(_anthropic(model)),
        )


class Catalog:
    """The models that one kind of caller may use."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        """`entries` are by id, in the order of the list."""
        self._entries = list(entries.values())
        self._places = {id: place for place, id in enumerate(entries)}
        items = b",".join(entry.openai for entry in self._entries)
        self.openai = b'{"object":"list","data":[' + items + b"]}"
        """The whole list in OpenAI's shape."""

    def anthropic(self, page: Page) -> bytes:
        """A part of the list in Anthropic's shape.

        Raises `InvalidRequest` when the page begins or ends at a model that is not listed.
        """
        if page.before_id is not None:
            end = self._place("before_id", page.before_id)
            start = max(0, end - page.limit)
            has_more = start > 0
        else:
            start = 0 if page.after_id is None else self._place("after_id", page.after_id) + 1
            end = start + page.limit
            has_more = end < len(self._entries)
        return _anthropic_list(self._entries[start:end], has_more=has_more)

    def _place(self, parameter: str, id: str) -> int:
        place = self._places.get(id)
        if place is None:
            raise InvalidRequest(f"{parameter}: no model of this id is listed.")
        return place


def _openai(model: Model, created_s: int) -> dict[str, Any]:
    features = ["tools"] if model.supports_tools else []
    if model.supports_structured_output:
        features += ["json_mode", "structured_outputs"]
    return {
        "id": model.id,
        "object": "model",
        "name": model.name,
        "created": created_s,
        "owned_by": model.routes[0].provider,
        "input_modalities": model.input_modalities,
        "output_modalities": model.output_modalities,
        "quantization": model.quantization,
        "context_length": model.context_length,
        "max_output_length": model.max_output_length,
        "pricing": model.pricing,
        "supported_sampling_parameters": sorted(model.supported_params),
        "supported_features": features,
    }


def _anthropic(model: Model) -> dict[str, str]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name,
        "created_at": RELEASED_AT,
    }


def _anthropic_list(entries: Sequence[Entry], *, has_more: bool) -> bytes:
    return b'{"data":[%b],"has_more":%b,"first_id":%b,"last_id":%b}' % (
        b",".join(entry.anthropic for entry in entries),
        b"true" if has_more else b"false",
        entries[0].id if entries else b"null",
        entries[-1].id if entries else b"null",
    )
