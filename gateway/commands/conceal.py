"""Keep the password of a Redis URL out of what `ps` shows and `up` prints."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs, unquote, urlsplit

from gateway.commands.processes import program


def conceal_password(url: str | None, environ: Mapping[str, str]) -> None:
    """Start this command anew with the URL in `REDIS_URL`, where our arguments may tell a password.

    The process id stays. Call it before anything is open or running.
    """
    if url is None or not may_hold_password(url):
        return
    kept = without(url, sys.argv[1:])
    if len(kept) < len(sys.argv) - 1:
        command = [*program(), *kept]
        os.execve(command[0], command, {**environ, "REDIS_URL": url})


def may_hold_password(url: str) -> bool:
    """Say whether a URL has a part where a password may be, whatever else is wrong with it."""
    return "@" in url or "?" in url


def without(value: str, arguments: Sequence[str]) -> list[str]:
    """Drop an option's value, and the option with it, in either way of writing them."""
    kept: list[str] = []
    for word in arguments:
        if word == value:
            kept.pop()
        elif not (word.startswith("--") and word.endswith(f"={value}")):
            kept.append(word)
    return kept


def redis_cli(url: str) -> str:
    """Spell how a person reaches the store, without its password.

    Of the options that a URL may carry, only those that redis-cli has are kept.
    """
    parts = urlsplit(url)
    if parts.scheme == "embedded":
        return "embedded"
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    user = parts.username or options.get("username", "")
    has_password = bool(parts.password or options.get("password"))
    if parts.scheme == "unix":
        command = ["redis-cli", "-s", unquote(parts.path)]
        if options.get("db", "0") != "0":
            command += ["-n", options["db"]]
        if has_password:
            command += [*(["--user", unquote(user)] if user else []), "--askpass"]
        return shlex.join(command)
    address = parts.netloc.rpartition("@")[2]
    if has_password:
        address = f"{user}:***@{address}"
    elif user:
        address = f"{user}@{address}"
    path = f"/{options['db']}" if "db" in options else parts.path
    return shlex.join(["redis-cli", "-u", f"{parts.scheme}://{address}{path}"])
