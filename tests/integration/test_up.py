"""`concord up` as a person runs it: what it prints, serves and leaves behind."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.state.server import PrivateRedis, find_server

pytestmark = pytest.mark.usefixtures("redis_binary")

START_S = 100.0
END_S = 10.0
OFFSETS = (0, 1, 2, 90, 100, 101)


class Up:
    """A running `concord up`, its printed lines by name, its descendants by process id."""

    def __init__(self, process: subprocess.Popen[str], port: int, folder: Path) -> None:
        self.process = process
        self.port = port
        self.folder = folder
        self.lines: dict[str, str] = {}

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        timer = threading.Timer(START_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                name, _, value = line.rstrip("\n").partition(": ")
                self.lines[name] = value
                if name == "ready":
                    return
        finally:
            timer.cancel()
        pytest.fail(f"ended before it was ready:\n{self.log}")

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def file(self) -> Path:
        return self.folder / f"concord-{os.getuid()}" / "up.json"

    def url(self, offset: int = 0) -> str:
        return f"http://127.0.0.1:{self.port + offset}"

    def children(self) -> list[int]:
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(pid) for pid in listed.stdout.split()]


def free_port() -> int:
    """A port with those around it that `up` also takes."""
    while True:
        port = random.randrange(20_000, 32_000)
        try:
            for offset in OFFSETS:
                socket.create_server(("127.0.0.1", port + offset)).close()
        except OSError:
            continue
        return port


@contextmanager
def up(folder: Path, *options: str, port: int | None = None, **environ: str) -> Iterator[Up]:
    """Start it in a process group of its own, as a shell does."""
    port = port or free_port()
    command = [sys.executable, "-m", "gateway", "up", "--port", str(port), *options]
    kept = {name: text for name, text in os.environ.items() if name != "REDIS_URL"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            env={**kept, "XDG_RUNTIME_DIR": str(folder), **environ},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            process_group=0,
        )
    with process:
        try:
            yield Up(process, port, folder)
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One demo cluster for the tests that only look at it."""
    with up(tmp_path_factory.mktemp("demo")) as running:
        running.wait_until_ready()
        yield running
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(END_S) == 0


def chat(url: str) -> httpx.Response:
    body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=10)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + END_S
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, f"left behind: {list(filter(is_running, pids))}"
        time.sleep(0.05)


def test_prints_where_everything_is(demo: Up) -> None:
    assert list(demo.lines) == ["base_url", "model", "admin_key", "redis", "curl", "ready"]
    assert demo.lines["base_url"] == f"{demo.url()}/v1"
    assert demo.lines["model"] == "demo"
    assert demo.lines["admin_key"].startswith("sk-concord-admin-")


def test_printed_curl_line_gets_an_answer(demo: Up) -> None:
    answered = subprocess.run(
        shlex.split(demo.lines["curl"]), capture_output=True, text=True, check=True
    )

    completion: dict[str, Any] = json.loads(answered.stdout)
    assert completion["model"] == "demo"
    assert completion["choices"][0]["message"]["content"].startswith("tok0 tok1")


def test_printed_redis_line_reaches_the_store(demo: Up) -> None:
    command, option, path = shlex.split(demo.lines["redis"])

    assert (command, option) == ("redis-cli", "-s")
    assert stat.S_ISSOCK(Path(path).stat().st_mode)


def test_both_replicas_and_the_shared_port_serve(demo: Up) -> None:
    for offset in (0, 1, 2):
        assert chat(demo.url(offset)).status_code == 200
        assert httpx.get(f"{demo.url(offset)}/readyz").json()["status"] == "ready"


def test_admin_key_is_told_but_not_to_ps(demo: Up) -> None:
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)

    assert demo.lines["admin_key"] not in shown.stdout


def test_other_commands_find_it(demo: Up) -> None:
    told = json.loads(demo.file.read_text())

    assert stat.S_IMODE(demo.file.stat().st_mode) == 0o600
    assert told["base_url"] == demo.lines["base_url"]
    assert told["admin_key"] == demo.lines["admin_key"]
    assert told["replicas"] == [demo.url(1), demo.url(2)]
    assert Path(told["config"], "models.yaml").exists()


def concord(running: Up, *words: str) -> subprocess.CompletedProcess[str]:
    """Run an operator's command against a running cluster."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", *words],
        env={**os.environ, "XDG_RUNTIME_DIR": str(running.folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_coordinator_leads_and_is_told_of(demo: Up) -> None:
    assert httpx.get(f"{demo.url(90)}/livez").json() == {"status": "alive"}
    answer = httpx.get(f"{demo.url(90)}/readyz").json()
    assert (answer["status"], answer["role"]) == ("ready", "leader")

    told = json.loads(concord(demo, "status", "--json").stdout)

    assert told["coordinator"]["holder"] == answer["leader"]
    assert told["coordinator"]["epoch"] == answer["epoch"]
    assert told["coordinator"]["config_digest"] == told["config_digest"]
    assert told["warnings"] == []


def test_its_redis_is_found_in_order_with_every_key_that_it_has(demo: Up) -> None:
    assert chat(demo.url()).status_code == 200

    found = concord(demo, "redis", "doctor", "--json")

    assert found.returncode == 0, found.stdout + found.stderr
    told = json.loads(found.stdout)
    assert told["problems"] == []
    names = {family["name"]: family for family in told["families"]}
    assert names.keys() >= {"{m:…}:endpoints", "{cluster}:replicas", "{cluster}:lease"}
    assert names["{cluster}:lease"]["lasting"] == 1
    assert "nothing is wrong" in concord(demo, "redis", "doctor").stdout


def test_what_is_wrong_with_its_redis_is_told_by_the_exit_code(tmp_path: Path) -> None:
    binary = find_server()
    assert binary is not None
    with (
        PrivateRedis(binary, ["maxmemory-policy allkeys-lru"]) as server,
        up(tmp_path, "--redis", server.url) as running,
    ):
        running.wait_until_ready()
        found = concord(running, "redis", "doctor")
        told = json.loads(concord(running, "status", "--json").stdout)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(END_S) == 0

    assert found.returncode == 1
    assert "problem: maxmemory-policy is allkeys-lru" in found.stdout
    assert any("maxmemory-policy is allkeys-lru" in warning for warning in told["warnings"])
    assert "redis_warning" in running.log


def test_taken_port_is_named(demo: Up, tmp_path: Path) -> None:
    with up(tmp_path, port=demo.port) as second:
        assert second.process.wait(START_S) == 1

        assert f"127.0.0.1:{demo.port}" in second.log
        assert "in use" in second.log


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        running.wait_until_ready()
        children = running.children()
        assert len(children) == 6

        os.killpg(running.process.pid, signal.SIGINT)

        assert running.process.wait(END_S) == 0
        assert not any(map(is_running, children))
        assert not running.file.exists()
        assert not Path(running.lines["redis"].split()[-1]).parent.exists()


def test_killed_it_takes_its_children_along(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux tells a child of its parent's death")
    with up(tmp_path) as running:
        running.wait_until_ready()
        children = running.children()

        running.process.kill()

        wait_until_gone(children)
        told = json.loads(running.file.read_text())
        shutil.rmtree(told["config"])
        shutil.rmtree(Path(running.lines["redis"].split()[-1]).parent)


@pytest.mark.parametrize("victim", ["redis-server", "serve", "coordinator"])
def test_child_that_ends_by_itself_ends_everything(tmp_path: Path, victim: str) -> None:
    with up(tmp_path) as running:
        running.wait_until_ready()
        children = running.children()
        for pid in children:
            if victim in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)
                break

        assert running.process.wait(END_S) == 1

        assert "was killed by SIGKILL" in running.log
        assert not any(map(is_running, children))


def test_open_request_is_served_to_its_end(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        running.wait_until_ready()
        with slow_request(running, delay_ms=1500) as statuses:
            running.process.send_signal(signal.SIGINT)
            assert running.process.wait(END_S) == 0

        assert statuses == [200]


def test_second_signal_does_not_wait(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        running.wait_until_ready()
        children = running.children()
        with slow_request(running, delay_ms=60_000):
            running.process.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                running.process.wait(0.5)
            running.process.send_signal(signal.SIGINT)
            assert running.process.wait(END_S) == 0

        assert not any(map(is_running, children))


@contextmanager
def slow_request(running: Up, delay_ms: int) -> Iterator[list[int]]:
    """Have a request under way; the statuses of what was answered follow at the end."""
    engines = [running.url(offset) for offset in (100, 101)]
    for engine in engines:
        httpx.post(f"{engine}/control", json={"fault": {"delay_ms": delay_ms}}).raise_for_status()
    statuses: list[int] = []

    def ask() -> None:
        try:
            statuses.append(chat(running.url()).status_code)
        except httpx.HTTPError:
            statuses.append(0)

    asking = threading.Thread(target=ask)
    asking.start()
    deadline = time.monotonic() + 5
    while not any(httpx.get(f"{engine}/control").json()["active"] for engine in engines):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield statuses
    asking.join(END_S)


def test_given_redis_is_used_and_its_password_shown_nowhere(tmp_path: Path) -> None:
    binary = find_server()
    assert binary is not None
    port = free_port() + 50
    with PrivateRedis(binary, [f"port {port}", "requirepass hush-hush"]):
        url = f"redis://:hush-hush@127.0.0.1:{port}/0"
        with up(tmp_path, "--redis", url) as running:
            running.wait_until_ready()
            shown = subprocess.run(
                ["ps", "-eo", "args"], capture_output=True, text=True, check=True
            )
            running.process.send_signal(signal.SIGINT)
            assert running.process.wait(END_S) == 0

    assert running.lines["redis"] == f"redis-cli -u 'redis://:***@127.0.0.1:{port}/0'"
    assert "hush-hush" not in running.log
    assert "hush-hush" not in shown.stdout


def test_password_given_as_an_option_of_the_url_is_shown_nowhere_either(tmp_path: Path) -> None:
    binary = find_server()
    assert binary is not None
    port = free_port() + 50
    url = f"redis://127.0.0.1:{port}?password=hush-hush"
    with (
        PrivateRedis(binary, [f"port {port}", "requirepass hush-hush"]),
        up(tmp_path, "--redis", url) as running,
    ):
        running.wait_until_ready()
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(END_S) == 0

    assert running.lines["redis"] == f"redis-cli -u 'redis://:***@127.0.0.1:{port}'"
    assert "hush-hush" not in running.log
    assert "hush-hush" not in shown.stdout


def test_embedded_store_serves_one_replica(tmp_path: Path) -> None:
    with up(tmp_path, REDIS_URL="embedded://") as running:
        running.wait_until_ready()

        assert running.lines["redis"] == "embedded"
        assert "single-process" in running.log
        assert chat(running.url()).status_code == 200
        assert len(json.loads(running.file.read_text())["replicas"]) == 1
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(END_S) == 0


def test_embedded_store_refuses_more_replicas(tmp_path: Path) -> None:
    with up(tmp_path, "--replicas", "2", REDIS_URL="embedded://") as running:
        assert running.process.wait(START_S) == 1

        assert "cannot serve 2 replicas" in running.log


def test_configuration_with_errors_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("models: [{id: 7}]\n")
    with up(tmp_path, "--config", str(tmp_path)) as running:
        assert running.process.wait(START_S) == 1

        assert "models.yaml" in running.log
