"""Keys in a file: those that are to stay out of messages, and those where none belongs."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.problems import Problems, join
from gateway.core.masking import looks_like_key

_PLACES = frozenset({"api_key", "api_keys", "key", "headers"})
"""What may hold a key."""


def keys_in(tree: object, *, is_place: bool = False) -> Iterator[str]:
    """All texts of a tree in places for keys."""
    if isinstance(tree, str):
        if is_place:
            yield tree
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield from keys_in(value, is_place=name != "min_role" and (is_place or name in _PLACES))
    elif isinstance(tree, list):
        for one in tree:
            yield from keys_in(one, is_place=is_place)


def warn_of_misplaced_keys(tree: object, problems: Problems, path: str = "") -> None:
    """Note what looks like a key in any other place, where it would be shown and stored."""
    if isinstance(tree, str) and looks_like_key(tree):
        problems.warning(
            path, "holds what looks like a key: logs and Redis will show it", "is it an api_key?"
        )
    elif isinstance(tree, dict):
        for name, value in tree.items():
            if name not in _PLACES:
                warn_of_misplaced_keys(value, problems, join(path, str(name)))
    elif isinstance(tree, list):
        for index, one in enumerate(tree):
            warn_of_misplaced_keys(one, problems, f"{path}[{index}]")
