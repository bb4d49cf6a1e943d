"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Line columns up, each as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *rows)
    )
    return "\n".join(lines)
