"""Port numbers on the command line."""

from __future__ import annotations

import argparse

HIGHEST = 65_535


def port_or_any(text: str) -> int:
    """Read a port; 0 is for a free one, which the system chooses."""
    return _port(text, 0)


def port(text: str) -> int:
    """Read the number of a port."""
    return _port(text, 1)


def _port(text: str, lowest: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not lowest <= value <= HIGHEST:
        raise argparse.ArgumentTypeError(f"{text} is not a port from {lowest} to {HIGHEST}")
    return value
