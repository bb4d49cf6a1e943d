"""Tell apart, without parsing, the stream events that can be relayed as they are.

After the first output nearly every event is one more piece of it. Such a run of events is looked
at as bytes: it is plain when each is one `data:` line with an object, and none of them says what a
gateway must act on: an error, a usage, a finish, an unheard-of model. Inside JSON's strings quotes
are escaped, so the names of keys cannot be mistaken for content.
"""

from __future__ import annotations

import re

import msgspec

_PLAIN = re.compile(rb"(?:data: ?\{.*\}\n\n)+")
_SPECIAL = rb'"(?:error"|usage"\s*:\s*\{|finish_reason"\s*:\s*"|model"(?!: ?(?:%b|%b)))'


class Relay:
    """Passes plain events of one stream on, one model's name in the other's place."""

    def __init__(self, theirs: str, ours: str) -> None:
        their_name, our_name = msgspec.json.encode(theirs), msgspec.json.encode(ours)
        self._special = re.compile(_SPECIAL % (re.escape(their_name), re.escape(our_name)))
        self._is_renamed = theirs != ours
        self._renamings = [
            (colon + their_name, colon + our_name) for colon in (b'"model":', b'"model": ')
        ]

    def pass_on(self, events: bytes) -> bytes | None:
        """Whole events as the client gets them; `None` when they are not plain."""
        if not _PLAIN.fullmatch(events) or self._special.search(events):
            return None
        if self._is_renamed:
            for their_model, our_model in self._renamings:
                events = events.replace(their_model, our_model)
        return events
