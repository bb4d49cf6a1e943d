"""The parts of `concord up` that need no process: addresses, printed lines, its file, the demo."""

from __future__ import annotations

import stat
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from msgspec import structs

from gateway.commands.cluster import Place
from gateway.commands.conceal import conceal_password, redis_cli, without
from gateway.commands.demo import without_other_files, write_demo
from gateway.commands.running import (
    NotPrivate,
    Running,
    find,
    prepare,
    publish,
    running_file,
    withdraw,
)
from gateway.config.load import load

RUNNING = Running(
    base_url="http://127.0.0.1:4000/v1",
    replicas=("http://127.0.0.1:4001",),
    redis="unix:///run/redis.sock",
    admin_key="sk-admin",
    config="/etc/concord",
)


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("embedded://", "embedded"),
        ("unix:///run/redis.sock", "redis-cli -s /run/redis.sock"),
        ("unix:///run/redis.sock?db=3", "redis-cli -s /run/redis.sock -n 3"),
        ("redis://host:6380/2", "redis-cli -u redis://host:6380/2"),
        ("rediss://host", "redis-cli -u rediss://host"),
        ("redis://:secret@host/0", "redis-cli -u 'redis://:***@host/0'"),
        ("redis://me:sec%40ret@host", "redis-cli -u 'redis://me:***@host'"),
        ("redis://me@host", "redis-cli -u redis://me@host"),
        ("redis://host:6379?password=secret", "redis-cli -u 'redis://:***@host:6379'"),
        ("redis://host?p%61ssword=secret", "redis-cli -u 'redis://:***@host'"),
        ("redis://host/1?username=me&password=secret&db=3", "redis-cli -u 'redis://me:***@host/3'"),
        ("rediss://host?ssl_password=secret", "redis-cli -u rediss://host"),
        ("unix:///x.sock?password=secret", "redis-cli -s /x.sock --askpass"),
        ("unix:///x.sock?username=me&password=secret", "redis-cli -s /x.sock --user me --askpass"),
        ("unix://me:secret@/x.sock?db=2", "redis-cli -s /x.sock -n 2 --user me --askpass"),
    ],
)
def test_redis_line_reaches_the_store_without_its_password(url: str, line: str) -> None:
    assert redis_cli(url) == line


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:4002"),
        ("0.0.0.0", "http://127.0.0.1:4002"),
        ("::", "http://[::1]:4002"),
        ("gateway.internal", "http://gateway.internal:4002"),
    ],
)
def test_place_is_reached_from_this_machine(host: str, url: str) -> None:
    assert Place(host, 4000).url(2) == url


def test_file_is_private_and_goes_with_its_owner(tmp_path: Path) -> None:
    path = running_file({"XDG_RUNTIME_DIR": str(tmp_path)})

    publish(path, RUNNING)

    assert find(path) == RUNNING
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["up.json"]
    withdraw(path, RUNNING, None)
    assert find(path) is None


def test_file_of_another_up_stays(tmp_path: Path) -> None:
    path = running_file({"XDG_RUNTIME_DIR": str(tmp_path)})
    publish(path, RUNNING)
    other = Running(
        base_url="http://127.0.0.1:5000/v1",
        replicas=(),
        redis="embedded://",
        admin_key="sk-other",
        config="/",
    )
    publish(path, other)

    withdraw(path, RUNNING, None)

    assert find(path) == other


@pytest.mark.parametrize("runs_on", [True, False], ids=["runs on", "has ended"])
def test_file_goes_back_to_the_up_that_was_there_before_if_it_runs_on(
    tmp_path: Path, runs_on: bool
) -> None:
    path = running_file({"XDG_RUNTIME_DIR": str(tmp_path)})
    server = HTTPServer(("127.0.0.1", 0), Alive)
    before = structs.replace(RUNNING, replicas=(f"http://127.0.0.1:{server.server_port}",))
    publish(path, RUNNING)
    with server:
        answering = Thread(target=server.handle_request)
        if runs_on:
            answering.start()
        else:
            server.server_close()
        withdraw(path, RUNNING, before)
        if runs_on:
            answering.join()

    assert find(path) == (before if runs_on else None)


class Alive(BaseHTTPRequestHandler):
    """Says that it lives."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/livez" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_place_of_the_file_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    path = running_file({"XDG_RUNTIME_DIR": str(tmp_path)})
    publish(path, RUNNING)

    prepare(path)

    assert [entry.name for entry in path.parent.iterdir()] == ["up.json"]
    assert find(path) == RUNNING


def test_place_that_cannot_be_written_is_found_early() -> None:
    with pytest.raises(OSError, match="Not a directory"):
        prepare(running_file({"XDG_RUNTIME_DIR": "/dev/null"}))


def test_file_is_not_written_where_others_may_look(tmp_path: Path) -> None:
    path = running_file({"XDG_RUNTIME_DIR": str(tmp_path)})
    path.parent.mkdir(mode=0o755)

    with pytest.raises(NotPrivate):
        publish(path, RUNNING)


def test_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    path = running_file({"XDG_RUNTIME_DIR": str(tmp_path)})
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path.parent.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotPrivate):
        publish(path, RUNNING)


def test_demo_is_a_configuration_without_errors(tmp_path: Path) -> None:
    write_demo(tmp_path, [4100, 4101])

    loaded = load(tmp_path, {})

    assert loaded.config is not None
    routes = loaded.config.models["demo"].routes
    assert [route.base_url for route in routes] == [
        "http://127.0.0.1:4100/v1",
        "http://127.0.0.1:4101/v1",
    ]


def test_demo_is_not_replaced_by_the_environment() -> None:
    kept = without_other_files({"MODELS_CONFIG": "/m", "ROUTING_CONFIG_PATH": "/r", "HOME": "/h"})

    assert kept == {"HOME": "/h"}


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["up", "--redis", "URL", "--port", "1"], ["up", "--port", "1"]),
        (["up", "--redis=URL", "--port", "1"], ["up", "--port", "1"]),
        (["up", "--red", "URL"], ["up"]),
        (["up", "--port", "1"], ["up", "--port", "1"]),
    ],
    ids=["apart", "joined", "abbreviated", "absent"],
)
def test_option_is_dropped_with_its_value(arguments: list[str], kept: list[str]) -> None:
    assert without("URL", arguments) == kept


@pytest.mark.parametrize(
    "url",
    [
        "redis://:pw@host",
        "redis://host?password=pw",
        "redis://host?username=me&p%61ssword=pw",
        "rediss://host?ssl_password=pw",
        "unix:///x.sock?password=pw",
        "redis://:pw@[broken",
    ],
)
def test_password_in_any_place_goes_from_the_arguments_to_the_environment(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(sys, "argv", ["concord", "up", "--redis", url, "--port", "1"])
    monkeypatch.setattr("os.execve", lambda _, argv, environ: started.append((argv, environ)))

    conceal_password(url, {"HOME": "/h"})

    ((argv, environ),) = started
    assert argv[-3:] == ["up", "--port", "1"]
    assert environ == {"HOME": "/h", "REDIS_URL": url}


def test_nothing_is_concealed_without_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["concord", "up", "--redis", "redis://host"])

    conceal_password("redis://host", {})
    conceal_password(None, {})
