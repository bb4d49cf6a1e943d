"""What is sent and answered: a chat request of about 1 KB, a completion, the events of a stream."""

from __future__ import annotations

import json
from typing import Any

MODEL = "bench"
PATH = "/v1/chat/completions"
EVENTS = 200
"""Events of an unpaced stream, the first with the role and the last with the finish reason."""
EVENT_BYTES = 200
DONE = b"data: [DONE]\n\n"
_PROMPT = "Say in a few words what a gateway is for, and leave nothing out that matters. " * 10


def request(*, stream: bool) -> bytes:
    """Body of a chat request."""
    messages = [
        {"role": "system", "content": "You are a terse assistant."},
        {"role": "user", "content": _PROMPT.strip()},
    ]
    fields: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": EVENTS}
    return json.dumps(fields | ({"stream": True} if stream else {})).encode()


def completion() -> bytes:
    """A whole answer, about 600 bytes."""
    content = "A gateway takes requests for a model and brings each to an engine that serves it. "
    return json.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1700000000,
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": content * 3},
                    "finish_reason": "stop",
                    "logprobs": None,
                }
            ],
            "usage": {"prompt_tokens": 180, "completion_tokens": 54, "total_tokens": 234},
        }
    ).encode()


def event(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": MODEL,
        "choices": [choice],
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def token(number: int) -> bytes:
    """An event with content, `EVENT_BYTES` long.

    Neighbours differ: LiteLLM takes a stream that repeats itself for a broken model's.
    """
    bare = len(event({"content": ""}))
    return event({"content": f" {number % 10}" + "x" * (EVENT_BYTES - bare - 2)})


def first() -> bytes:
    """The event with the role."""
    return event({"role": "assistant", "content": ""})


def stream() -> bytes:
    """A whole stream."""
    return b"".join([first(), *map(token, range(EVENTS - 2)), event({}, "stop"), DONE])


def is_completion(answer: bytes) -> bool:
    """Whether it is the completion, whatever a gateway has added to it."""
    try:
        content = json.loads(answer)["choices"][0]["message"]["content"]
        return str(content).startswith("A gateway takes")
    except (ValueError, KeyError, IndexError, TypeError):
        return False


def is_stream(answer: bytes) -> bool:
    """Whether it is a whole stream: a gateway may drop the role's event, but no content."""
    return answer.count(b'xxx"') >= EVENTS - 2 and DONE in answer


def has_begun(answer: bytes) -> bool:
    """Whether a stream has brought content."""
    return b'xxx"' in answer
