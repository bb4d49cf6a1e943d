"""How much a chat request may make an upstream produce, as far as it says."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from gateway.core.request import ChatRequest
from gateway.core.route import Model
from gateway.protocols.lone_escapes import decode

_BOUNDS = ("max_completion_tokens", "max_tokens")
MOST_TOKENS = 10**12
"""Whatever a client writes, it stays a number that scripts can add up."""
_IMAGES = frozenset({"image_url", "image", "input_image"})
_whole = msgspec.json.Decoder(int)


def output_bound(chat: ChatRequest) -> int | None:
    """The request's own bound on the tokens of one choice; `None` where it has none.

    Of two the larger counts: upstreams differ in which of them they obey.
    """
    bounds = [bound for name in _BOUNDS if (bound := _read(chat.fields.get(name))) is not None]
    return max(bounds, default=None)


def choices(chat: ChatRequest) -> int:
    """How many choices are asked for."""
    return max(_read(chat.fields.get("n")) or 1, 1)


def most_output(chat: ChatRequest, model: Model, *, unbounded: int | None = None) -> int:
    """What an answer may have at the most on whichever route; 0 where nothing says.

    `unbounded` is what a request without a bound of its own is taken to want.
    """
    own = output_bound(chat)
    known = [bound for bound in (unbounded if own is None else own,) if bound is not None]
    caps = [route.max_output_length for route in model.routes]
    if None not in caps:
        known.append(max(cap or 0 for cap in caps))
    return min(choices(chat) * min(known), MOST_TOKENS) if known else 0


def images(chat: ChatRequest) -> int:
    """How many images the messages hold."""
    return sum(part.type in _IMAGES for message in chat.messages for part in message.parts)


def _read(raw: Raw | None) -> int | None:
    """A whole number from 0 on; whatever else stands there is for the upstream to judge."""
    try:
        value = None if raw is None else decode(_whole, raw)
    except msgspec.ValidationError:
        return None
    return value if value is not None and value >= 0 else None
