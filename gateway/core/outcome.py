"""How an attempt ended, as far as its endpoint's health is concerned."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What a settled attempt says of its endpoint. The values travel to `settle.lua`."""

    SUCCESS = "success"
    FAILURE = "failure"
    """Counts against the circuit: 5xx, 408, 429, timeouts, broken or empty answers."""
    AUTH = "auth"
    """The upstream rejected our credential (401, 407): a failure, and counted apart."""
    CONNECT = "connect"
    """No connection was made. Counts once a second replica confirms it (`lua/lib/conn.lua`)."""
    NEUTRAL = "neutral"
    """Says nothing of the endpoint: the caller's own mistake, a disconnect, an abandoned claim."""
