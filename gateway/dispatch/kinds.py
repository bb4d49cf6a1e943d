"""Where an attempt can fail, and what that can say of its key."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """Where an attempt failed."""

    STATUS = "status"
    """The upstream answered with something other than 200."""
    ERROR_FRAME = "error_frame"
    """It answered 200 and put an error into the body or the stream."""
    CONNECT = "connect"
    """No connection: name resolution, TCP, TLS, before a byte of the request was sent."""
    TIMEOUT = "timeout"
    """It kept silent for longer than the route allows."""
    BROKEN = "broken"
    """The answer was cut off, or is not one."""
    EMPTY = "empty"
    """The answer is whole and holds nothing."""
    KEYS_RESERVED = "keys_reserved"
    """Nothing was sent: the keys that would serve now are kept for other roles."""
    KEYS_EXHAUSTED = "keys_exhausted"
    """Nothing was sent: no key of the route serves anybody now."""
    SATURATED = "saturated"
    """Nothing was sent: no place became free at the gate in front of the endpoint."""
    QUEUE_WAIT = "queue_wait"
    """Nor before the request was to be offloaded."""
    ENGINE_WAIT = "engine_wait"
    """No output has come in time, and the request is to be offloaded."""


class KeyFault(StrEnum):
    """What a failure says of the upstream key that was used. The values travel to the scripts."""

    KEY = "key"
    """The upstream refuses this key; another may serve."""
    TRANSIENT = "transient"
    """It failed in a way that another key may not."""
