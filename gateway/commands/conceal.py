"""Keep the password of a Redis URL out of what `ps` shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from gateway.commands.processes import program


def conceal_password(url: str | None, environ: Mapping[str, str]) -> None:
    """Start this command anew with the URL in `REDIS_URL`, where its password is in our arguments.

    The process id stays. Call it before anything is open or running.
    """
    if url is None or not urlsplit(url).password:
        return
    kept = without(url, sys.argv[1:])
    if len(kept) < len(sys.argv) - 1:
        command = [*program(), *kept]
        os.execve(command[0], command, {**environ, "REDIS_URL": url})


def without(value: str, arguments: Sequence[str]) -> list[str]:
    """Drop an option's value, and the option with it, in either way of writing them."""
    kept: list[str] = []
    for word in arguments:
        if word == value:
            kept.pop()
        elif not (word.startswith("--") and word.endswith(f"={value}")):
            kept.append(word)
    return kept
