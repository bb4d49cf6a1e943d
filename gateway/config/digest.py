"""A short name for the content of a configuration, to see whether replicas agree."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from gateway.config.schema import Settings

_SECRETS = frozenset({"api_key", "api_keys", "key"})
_ALL_SECRET = "headers"
"""A mapping each of whose values may be a secret."""


def config_digest(trees: list[object], settings: Settings) -> str:
    """Return 12 hex digits over the files' values and the settings in force.

    Variables enter by name, secrets written into a file not at all: equal files give equal
    digests whatever the keys are, and nothing can be guessed from one. Comments and the order of
    keys do not count. Settings are in it because the environment may override them.
    """
    content = msgspec.json.encode([*(_public(tree) for tree in trees), settings], order="sorted")
    return hashlib.sha256(content).hexdigest()[:12]


def _public(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _judged(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_public(item) for item in value]
    return value


def _judged(key: str, item: object) -> Any:
    if key == _ALL_SECRET and isinstance(item, dict):
        return {name: _secret(value) for name, value in item.items()}
    return _secret(item) if key in _SECRETS else _public(item)


def _secret(value: object) -> Any:
    if isinstance(value, list):
        return [_secret(item) for item in value]
    if isinstance(value, dict):
        return _public(value)
    return value if isinstance(value, str) and value.startswith("${") else None
