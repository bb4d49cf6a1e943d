"""A chat request as the gateway sees it: the few fields it acts on, and the rest untouched."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, Struct


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A parsed chat completion request.

    `fields` is the caller's whole body, each value as its raw JSON, so that what we do not act on
    reaches the upstream byte for byte.
    """

    model: str
    """The public name as asked for: an id or an alias."""
    fields: Mapping[str, Raw]
    stream: bool = False
    wants_usage: bool = False
    """Whether a stream's caller asked for the usage chunk (`stream_options.include_usage`)."""
    modalities: frozenset[str] = frozenset()
    """Kinds of non-text input in the messages: image, audio, video, file."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens as the upstream counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
