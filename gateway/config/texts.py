"""Strings that are no text: half a character (a lone surrogate), which no encoding can carry.

YAML writes them as `"\\ud800"`; an environment variable that is not UTF-8 holds them, too.
"""

from __future__ import annotations

from gateway.config.problems import Problems, join

_MESSAGE = "holds half a character (a lone surrogate)"
_HINT = "write whole characters, as UTF-8"


def is_text(value: str) -> bool:
    """Say whether a string can be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def holds_half_characters(tree: object, problems: Problems, path: str = "") -> bool:
    """Note every string of a tree that is no text, keys among them; say whether there is one."""
    parts: list[tuple[object, str]] = []
    if isinstance(tree, str) and not is_text(tree):
        problems.error(path, _MESSAGE, _HINT)
        return True
    if isinstance(tree, dict):
        for key, value in tree.items():
            parts += [(key, join(path, str(key))), (value, join(path, str(key)))]
    elif isinstance(tree, list | tuple | set):
        parts += [(one, f"{path}[{index}]") for index, one in enumerate(tree)]
    found = [holds_half_characters(part, problems, place) for part, place in parts]
    return any(found)


def judge_variable(name: str, value: str, problems: Problems) -> None:
    """Note a variable of the environment that is no text."""
    if not is_text(value):
        problems.error(name, _MESSAGE, _HINT)
