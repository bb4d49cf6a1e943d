"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

WIDTH = 100
"""Columns that a terminal is taken to have."""
NARROWEST = 24
"""What the last column has at the least, however wide the others are."""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Line columns up, each as wide as its widest cell; the last one goes on below itself."""
    lines = (heads, *rows)
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    return "\n".join(text for line in lines for text in _lines(line, widths))


def _lines(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    first = "".join(f"{cell:{width}}  " for cell, width in zip(cells, widths, strict=False))
    room = max(WIDTH - len(first), NARROWEST)
    last = wrap(cells[-1], room, break_long_words=False, break_on_hyphens=False)
    yield (first + "".join(last[:1])).rstrip()
    for more in last[1:]:
        yield " " * len(first) + more
