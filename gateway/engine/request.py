"""A chat completion request, read as far as the engine acts on it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=1)]
"""A number of tokens a client may ask for."""

TOOL_PHRASE = "use a tool"
"""Where the last user message holds it and tools are offered, the answer is a tool call."""


class Message(Struct):
    """The fields of a message that matter to a token count."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        """All text of the message; other parts count nothing."""
        if isinstance(self.content, list):
            return "".join(str(part.get("text") or "") for part in self.content)
        return self.content or ""


class Function(Struct):
    """A function the model may call."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)


class Tool(Struct):
    """An offered tool."""

    function: Function
    type: str = "function"


class StreamOptions(Struct):
    """How a stream is to end."""

    include_usage: bool = False


class ChatRequest(Struct):
    """The request; fields the engine does not know are ignored."""

    model: str
    messages: Annotated[list[Message], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    tools: list[Tool] | None = None

    @property
    def prompt_tokens(self) -> int:
        """A quarter of the characters, rounded up; at least one."""
        return max(1, -(-sum(len(message.text) for message in self.messages) // 4))

    @property
    def limit(self) -> int | None:
        """The most output tokens the client takes, `None` for any number."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def wanted_tool(self) -> Function | None:
        """The function to call, where the client asks for one."""
        asked = [message.text for message in self.messages if message.role == "user"]
        if self.tools and asked and TOOL_PHRASE in asked[-1].lower():
            return self.tools[0].function
        return None
