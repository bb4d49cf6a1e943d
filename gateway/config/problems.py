"""What is wrong with a configuration, collected instead of raised.

A `Problems` belongs to one file. Before a message leaves it, it replaces every value that came from
an environment variable by the variable's name, and keys by `[key]`: those that the file has, and
what looks like one. So no secret reaches a terminal or a log.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from gateway.core.masking import MASK, mask_keys

_SHORTEST_SCRUBBED = 6
"""Shorter values (a port, `true`) would turn messages into riddles and hide nothing."""
_SHORTEST_KEY = 8


class Problem(Struct, frozen=True, kw_only=True):
    """One finding. `path` names the place in `file`, such as `models[0].route[1].weight`."""

    severity: Literal["error", "warning"]
    file: str
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """Write the line that `concord check` prints."""
        place = f"{self.file}: {self.path}" if self.path else self.file
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.severity} {place}: {self.message}{hint}"


class Problems:
    """Collects the findings of one file, or of the environment."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []
        self._scrubbed: dict[str, str] = {}
        """Value to what stands in its place."""

    def scrub(self, values: Mapping[str, str]) -> None:
        """Replace these values by their variables' names in every later message."""
        self._scrubbed.update(
            {
                value: f"${{{name}}}"
                for value, name in values.items()
                if len(value) >= _SHORTEST_SCRUBBED
            }
        )

    def conceal(self, keys: Iterable[str]) -> None:
        """Leave these keys out of every later message."""
        self._scrubbed = {
            **{key: MASK for key in keys if len(key) >= _SHORTEST_KEY},
            **self._scrubbed,
        }

    def error(self, path: str, message: str, hint: str = "") -> None:
        """Note something that must be changed before the configuration can be served."""
        self._add("error", path, message, hint)

    def warning(self, path: str, message: str, hint: str = "") -> None:
        """Note something that is served, but probably not as it was meant."""
        self._add("warning", path, message, hint)

    def _add(
        self, severity: Literal["error", "warning"], path: str, message: str, hint: str
    ) -> None:
        problem = Problem(
            severity=severity,
            file=self.file,
            path=self._clean(path),
            message=self._clean(message),
            hint=self._clean(hint),
        )
        # What several routes inherit from their model is judged, and wrong, once per route.
        if problem not in self.found:
            self.found.append(problem)

    def _clean(self, text: str) -> str:
        for value in sorted(self._scrubbed, key=len, reverse=True):
            text = text.replace(value, self._scrubbed[value])
        text = mask_keys(text)
        # Half a character, such as a file name that is no text, cannot be printed.
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the known word nearest to a misspelt one, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def join(path: str, key: str) -> str:
    """Spell the path of a key below `path`."""
    return f"{path}.{key}" if path else key


def within(path: str, prefix: str) -> bool:
    """Say whether `path` is `prefix` or lies below it."""
    return path == prefix or path.startswith((prefix + ".", prefix + "["))
