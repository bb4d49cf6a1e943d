"""A chat request as the gateway sees it: the few fields it acts on, and the rest untouched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Raw, Struct


class Part(Struct, frozen=True):
    """An item of a message's content, where that is a list."""

    value: Mapping[str, Raw] | Raw
    """An object's fields; anything else as it is written."""
    type: str = ""
    """What an object calls itself, `image_url` for example; empty for none."""
    text: Raw | None = None
    """The JSON string that it is, or that an object has as its `text`."""


class Message(Struct, frozen=True):
    """A message, its fields as they are written."""

    fields: Mapping[str, Raw]
    parts: Sequence[Part] = ()
    """The items of a content that is a list."""

    @property
    def role(self) -> bytes:
        """The role as it is written, in quotes."""
        return bytes(self.fields.get("role", b"null"))

    @property
    def content(self) -> Raw | None:
        """The content as it is written; `None` where there is none."""
        content = self.fields.get("content")
        return None if content is None or _is_null(content) else content

    def others(self) -> Iterator[tuple[str, Raw]]:
        """The fields besides role and content, without those that are null."""
        for name, value in self.fields.items():
            if name not in ("role", "content") and not _is_null(value):
                yield name, value


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A parsed chat completion request.

    `fields` is the caller's whole body, each value as its raw JSON, so that what we do not act on
    reaches the upstream byte for byte.
    """

    model: str
    """The public name as asked for: an id or an alias."""
    fields: Mapping[str, Raw]
    messages: Sequence[Message] = ()
    """Those that are objects; odd ones are for the upstream to judge."""
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
    """Of the prompt's."""

    @property
    def total(self) -> int:
        """All that counts against a limit of tokens."""
        return self.prompt_tokens + self.completion_tokens


def _is_null(raw: Raw) -> bool:
    return memoryview(raw)[0] == ord("n")
