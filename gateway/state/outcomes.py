"""How attempts have ended, as they are kept for the coordinator to learn from.

The words are those of `lua/lib/outcomes.lua`. Whatever somebody has edited into nonsense is no
outcome.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from msgspec import Struct

from gateway.state.keys import encode_id

_KEPT = re.compile(
    r"at=(\S+) how=(ok|error) ttft_ms=(\d{1,12}) prompt=(\d{1,12}) output=(\d{1,12})( by=probe)?",
    re.ASCII,
)
_ID = re.compile(r"(\d{1,15})-\d+", re.ASCII)


class Ended(Struct, frozen=True, kw_only=True):
    """How an attempt has ended. What is not known is 0."""

    location: str
    is_ok: bool
    at_ms: int = 0
    """When, by the clock of Redis."""
    ttft_ms: int = 0
    """From sending to the first output, or to a whole answer that does not stream."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    is_probe: bool = False
    """Whether it was no request of a client's."""


def write_ended(ended: Ended) -> str:
    """Spell an outcome; `read_ended` reads it."""
    return (
        f"at={encode_id(ended.location)} how={'ok' if ended.is_ok else 'error'} "
        f"ttft_ms={ended.ttft_ms} prompt={ended.prompt_tokens} output={ended.output_tokens}"
        f"{' by=probe' if ended.is_probe else ''}"
    )


def read_ended(id: str, words: str) -> Ended | None:
    """Read an outcome that is kept under an id."""
    found, at = _KEPT.fullmatch(words), _ID.fullmatch(id)
    if found is None or at is None:
        return None
    location, how, ttft_ms, prompt, output, by_probe = found.groups()
    return Ended(
        location=unquote(location),
        is_ok=how == "ok",
        at_ms=int(at[1]),
        ttft_ms=int(ttft_ms),
        prompt_tokens=int(prompt),
        output_tokens=int(output),
        is_probe=by_probe is not None,
    )
