"""Keys in a file: those that are to stay out of messages, and those where none belongs."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.problems import Problems, join
from gateway.core.masking import looks_like_key

_PLACES = frozenset({"api_key", "api_keys", "key", "headers"})
"""What may hold a key."""


def keys_in(tree: object) -> Iterator[str]:
    """All texts of a tree in places for keys."""
    return (text for _, text, is_place in _texts(tree) if is_place)


def warn_of_misplaced_keys(tree: object, problems: Problems) -> None:
    """Note what looks like a key in any other place, where it would be shown and stored."""
    for path, text, is_place in _texts(tree):
        if not is_place and looks_like_key(text):
            problems.warning(
                path,
                "holds what looks like a key: logs and Redis will show it",
                "is it an api_key?",
            )


def _texts(
    tree: object, path: str = "", *, is_place: bool = False
) -> Iterator[tuple[str, str, bool]]:
    """All texts of a tree: where they stand, and whether that is a place for keys."""
    if isinstance(tree, str):
        yield path, tree, is_place
    elif isinstance(tree, dict):
        for name, value in tree.items():
            if is_place and name == "min_role" and isinstance(value, str):
                continue  # the role that a key is kept for
            below = is_place or name in _PLACES
            yield from _texts(value, join(path, str(name)), is_place=below)
    elif isinstance(tree, list):
        for index, one in enumerate(tree):
            yield from _texts(one, f"{path}[{index}]", is_place=is_place)
