"""The machine: which cores are whose, where things are kept, what versions the tools have."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import socket
import subprocess
from pathlib import Path

from gateway import __version__
from gateway.state.server import find_server

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"


class Unfit(Exception):
    """The machine lacks what the benchmark cannot do without."""


def divide() -> tuple[frozenset[int], frozenset[int]]:
    """Divide the cores: the gateway's one, and all others for load, upstreams and Redis."""
    gateway, *others = sorted(os.sched_getaffinity(0))
    if not others:
        raise Unfit("needs two cores: one for the gateway, one for all else")
    return frozenset({gateway}), frozenset(others)


def cache() -> Path:
    """The folder for the peers' environments and for results."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "concord-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tool(name: str) -> str:
    """Path of a program."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Unfit(f"needs {name} on PATH")
    return found


def allow_many_sockets() -> None:
    """Raise the limit of open files as far as it goes; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def nginx_version() -> str:
    """Of the nginx on PATH."""
    return _found(r"nginx/([\d.]+)", [tool("nginx"), "-v"])


def redis_version() -> str:
    """Of the server that Concord's Redis is started from."""
    server = find_server()
    if server is None:
        raise Unfit("needs a redis-server")
    return _found(r"v=([\d.]+)", [str(server), "--version"])


def concord_version() -> str:
    """Of this tree: the package's version, the commit, and whether files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=8"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__} ({described.stdout.strip()})"


def describe() -> str:
    """One line about what the numbers were taken on."""
    cpu = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text("utf-8"))
    wrk = _found(r"wrk (\S+)", [tool("wrk"), "-v"])
    return (
        f"{len(os.sched_getaffinity(0))} cores of {cpu[1] if cpu else platform.machine()}, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"Redis {redis_version()}, wrk {wrk}, load average at the start {os.getloadavg()[0]:.1f}"
    )


def _found(pattern: str, command: list[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(pattern, answer.stdout + answer.stderr)
    return match[1] if match else "unknown"
