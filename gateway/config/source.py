"""YAML text to plain values, stricter than YAML.

Refused, each with its line: duplicate keys (YAML keeps the last one silently), keys that are not
strings (an unquoted `on` is a boolean to YAML), anchors that contain themselves, other tags than
the standard ones. No line of the source is quoted in a message: it may hold a secret.
"""

from __future__ import annotations

from typing import Any

import yaml

from gateway.config.problems import Problems

_MERGE_TAG = "tag:yaml.org,2002:merge"
_STRING_TAG = "tag:yaml.org,2002:str"


class _Loader(yaml.SafeLoader):
    """A SafeLoader that notes what a mapping would otherwise swallow."""

    def __init__(self, text: str, problems: Problems) -> None:
        super().__init__(text)
        self.problems = problems

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
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        problems.error("", f"{line}not valid YAML: {error.problem or error.context}")
        return None
    except (yaml.YAMLError, ValueError) as error:
        problems.error("", f"not valid YAML: {type(error).__name__}", "is the file UTF-8 text?")
        return None
    return None if len(problems.found) > before else value
