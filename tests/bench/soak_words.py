"""What clients and engines of the soak agree on: ids, the request, and the shapes of answers."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct, field

MODEL = "soak"
UPSTREAM_MODEL = "engine-model"
"""What the engine calls it, so that every answer has its name changed on the way."""
PATH = "/v1/chat/completions"
ID = re.compile(r"soak-[0-9a-f]{8}-\d{8}")
"""An id of a request, wherever it stands."""
DONE = b"[DONE]"


class Work(Struct, frozen=True):
    """What the engine is to do: waits between these bounds before an answer, or each event."""

    events: int = 1
    least_ms: int = 0
    most_ms: int = 0

    @property
    def about_s(self) -> float:
        """How long it takes on the average."""
        return self.events * (self.least_ms + self.most_ms) / 2000


class Message(Struct):
    """What somebody says."""

    content: str | None = None
    role: str = "user"


class Request(Struct):
    """A chat request; the gateway passes `work` on as it came."""

    messages: list[Message]
    work: Work
    model: str = MODEL
    stream: bool = False
    stream_options: dict[str, Any] | None = None


class Choice(Struct, omit_defaults=True):
    """A choice of an answer (`message`) or of an event (`delta`)."""

    message: Message | None = None
    delta: Message | None = None
    finish_reason: str | None = None
    index: int = field(default_factory=int)  # a factory, for what is a default is not written


class Error(Struct):
    """OpenAI's error: all four fields are required."""

    message: str
    type: str
    param: str | None
    code: str


class Answer(Struct, omit_defaults=True):
    """A whole answer, an event of a stream, or an error in place of either."""

    id: str = ""
    model: str = ""
    choices: list[Choice] = field(default_factory=list)
    usage: dict[str, int] | None = None
    error: Error | None = None


read_answer = msgspec.json.Decoder(Answer).decode
read_request = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode


def content_of(request_id: str, number: int) -> str:
    """What the event with this number says."""
    return f"{request_id} {number};"
