"""Where a running `concord up` is found: one small file, readable by its user alone."""

from __future__ import annotations

import contextlib
import os
import stat
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct


class Running(Struct, frozen=True, kw_only=True):
    """What the other commands need to know of a running `up`."""

    base_url: str
    replicas: tuple[str, ...]
    """Each replica's own address, without a path."""
    redis: str
    """A Redis URL, with its password; `embedded://` cannot be reached from outside."""
    admin_key: str
    config: str


class NotPrivate(Exception):
    """Others could read the file, or could have put it there."""


def running_file(environ: Mapping[str, str]) -> Path:
    """Where the file is for this user."""
    base = environ.get("XDG_RUNTIME_DIR") or "/tmp"
    return Path(base) / f"concord-{os.getuid()}" / "up.json"


def prepare(path: Path) -> None:
    """Make the folder and see whether it can be written; raises what `publish` does."""
    _make_folder(path)
    draft = _draft(path)
    draft.touch(mode=0o600)
    draft.unlink()


def publish(path: Path, running: Running) -> None:
    """Write the file in one step.

    Raises `NotPrivate` where its folder is not ours alone, `OSError` where it cannot be written.
    """
    _make_folder(path)
    draft = _draft(path)
    draft.touch(mode=0o600)
    draft.write_bytes(msgspec.json.encode(running))
    draft.replace(path)


def _make_folder(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = path.parent.lstat()
    is_ours = stat.S_ISDIR(folder.st_mode) and folder.st_uid == os.getuid()
    if not is_ours or folder.st_mode & 0o077:
        raise NotPrivate(f"{path.parent} is not a folder of this user's alone (mode 0700)")


def _draft(path: Path) -> Path:
    return path.with_name(f"up-{os.getpid()}.json")


def find(path: Path) -> Running | None:
    """Read the file, `None` where there is none that makes sense."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Running)
    except (OSError, msgspec.DecodeError):
        return None


def withdraw(path: Path, running: Running, before: Running | None) -> None:
    """Remove the file, or leave it to the `up` that it told of before if that still runs.

    Nothing is done when another has written its own since.
    """
    if find(path) != running:
        return
    with contextlib.suppress(OSError):  # then it tells of an `up` that has ended, as a kill does
        if before is not None and _answers(before):
            publish(path, before)
        else:
            path.unlink()


def _answers(running: Running) -> bool:
    try:
        with urllib.request.urlopen(f"{running.replicas[0]}/livez", timeout=1.0) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError, IndexError):
        return False
