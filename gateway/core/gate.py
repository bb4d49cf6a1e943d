"""A gate: a limit on how much is under way toward one upstream account or engine."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Gate(Struct, frozen=True, kw_only=True):
    """Which gate, and by which rule it is to go."""

    tag: str
    """`u:<provider>:<key12>` of an account, `e:<host:port>` of an engine: its identity."""
    limit: int
    """How many may pass at a time; of a learned limit what it begins with."""
    most: int = 0
    """Up to which the limit is learned; 0 where the last to enter brings it."""
    interval: int = 0
    """Answers of 200 after which a learned limit rises by one."""
    about: Mapping[str, str] = {}
    """What logs call it."""
