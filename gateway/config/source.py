"""YAML text to plain values, stricter than YAML.

Refused, each with its line: duplicate keys (YAML keeps the last one silently), keys that are not
strings (an unquoted `on` is a boolean to YAML), anchors that contain themselves, other tags than
the standard ones, and what is nested or repeated by anchors beyond all measure. No line of the
source is quoted in a message: it may hold a secret.
"""

from __future__ import annotations

from typing import Any

import yaml

from gateway.config.problems import Problems

_MERGE_TAG = "tag:yaml.org,2002:merge"
_STRING_TAG = "tag:yaml.org,2002:str"
_DEEPEST = 64
_MOST = 1_000_000
"""Values of a document, each counted as often as anchors repeat it."""
_TOO_MANY = f"anchors make more than {_MOST} values of it"
_TOO_DEEP = f"nested deeper than {_DEEPEST} levels"
_FLATTEN = "a configuration needs a few levels only"
_REPEAT_LESS = "use fewer aliases"


class _Excess(Exception):
    """A document that is too much once its anchors are followed; a sentence."""


class _Loader(yaml.SafeLoader):
    """A SafeLoader that notes what a mapping would otherwise swallow."""

    def __init__(self, text: str, problems: Problems) -> None:
        super().__init__(text)
        self.problems = problems
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth == _DEEPEST:
            raise yaml.composer.ComposerError(None, None, _TOO_DEEP, self.get_mark())
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == _MERGE_TAG:
                continue
            line = key.start_mark.line + 1
            if key.tag != _STRING_TAG:
                self.problems.error(
                    "", f"line {line}: a key is not a string", "put the key in quotes"
                )
            elif key.value in seen:
                self.problems.error(
                    "",
                    f"line {line}: the key {key.value!r} is given twice in one mapping",
                    "keep one of them; YAML would silently use the last",
                )
            else:
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def parse_yaml(text: str, problems: Problems) -> object | None:
    """Return the document's value, or `None` when it cannot be read; an empty one is `{}`."""
    before = len(problems.found)
    try:
        loader = _Loader(text, problems)
        node = loader.get_single_node()
        value = {} if node is None else loader.construct_object(node, deep=True)
        _measure(value, _DEEPEST, {})
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        if error.problem == _TOO_DEEP:
            problems.error("", f"{line}{_TOO_DEEP}", _FLATTEN)
        else:
            problems.error("", f"{line}not valid YAML: {error.problem or error.context}")
        return None
    except (_Excess, RecursionError) as error:
        message = str(error) if isinstance(error, _Excess) else _TOO_DEEP
        problems.error("", message, _FLATTEN if message == _TOO_DEEP else _REPEAT_LESS)
        return None
    except (yaml.YAMLError, ValueError) as error:
        problems.error("", f"not valid YAML: {type(error).__name__}", "is the file UTF-8 text?")
        return None
    return None if len(problems.found) > before else value


def _measure(value: object, levels: int, seen: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return how many values a tree holds and how many levels; raise `_Excess` for too many.

    An anchor is one object however often it is used, so it is looked at once.
    """
    if not isinstance(value, dict | list | tuple | set):
        return 1, 1
    if id(value) in seen:
        size, height = seen[id(value)]
    else:
        if levels == 0:
            raise _Excess(_TOO_DEEP)
        parts = value.values() if isinstance(value, dict) else value
        measured = [_measure(part, levels - 1, seen) for part in parts]
        size = 1 + sum(size for size, _ in measured)
        height = 1 + max((height for _, height in measured), default=0)
        seen[id(value)] = size, height
    if height > levels + 1:
        raise _Excess(_TOO_DEEP)
    if size > _MOST:
        raise _Excess(_TOO_MANY)
    return size, height
