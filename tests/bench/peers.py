"""The peers' own environments: made once with uv, outside the repository, at exact versions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from tests.bench import machine

INSTALL_S = 600


class Absent(Exception):
    """A peer cannot be had here; the text says why."""


class Peer(Struct, frozen=True):
    """A package to compare with. Versions are fixed, so that runs can be compared."""

    package: str
    version: str
    extra: str = ""

    @property
    def requirement(self) -> str:
        """What the installer is asked for."""
        return f"{self.package}{self.extra}=={self.version}"


SGLANG_ROUTER = Peer("sglang-router", "0.3.2")
LITELLM = Peer("litellm", "1.108.7", "[proxy]")


def install(peer: Peer) -> Path:
    """Make the peer's environment unless it is there. Returns the folder of its programs.

    Raises `Absent`. What was installed is listed in `packages.txt` beside the programs' folder.
    """
    folder = machine.cache() / f"{peer.package}-{peer.version}-py{sys.version_info[1]}"
    listing = folder / "packages.txt"
    if not listing.exists():
        uv = shutil.which("uv")
        if uv is None:
            raise Absent("not installed: needs uv on PATH")
        print(f"installing {peer.requirement} into {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        python = folder / "bin" / "python"
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), peer.requirement])
        listing.write_text(_run([uv, "pip", "freeze", "--python", str(python)]), "utf-8")
    return folder / "bin"


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Absent(f"not installed within {INSTALL_S} s") from error
    if done.returncode:
        raise Absent(f"not installed: {' '.join(done.stderr.split())[-300:]}")
    return done.stdout
