"""What the commands refuse before anything starts: one line on stderr and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gateway.__main__ import main

CHAT = 'models: [{id: m, name: M, provider: vllm, base_url: "http://localhost:1"}]'


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_URL", "CONCORD_TEST_UNSET", "CONCORD_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    # A password would have the command start anew, in this very process.
    monkeypatch.setattr("gateway.commands.serve.conceal_password", lambda *_: None)
    monkeypatch.setattr("gateway.commands.up.conceal_password", lambda *_: None)
    monkeypatch.setattr("gateway.commands.coordinator.conceal_password", lambda *_: None)
    monkeypatch.setattr("os.execve", nothing_starts)
    monkeypatch.setattr("gateway.commands.cluster.Cluster.start_replicas", nothing_starts)
    monkeypatch.setattr("gateway.commands.cluster.Cluster.start_engine", nothing_starts)
    monkeypatch.setattr("gateway.commands.up.find_server", lambda: None)


def nothing_starts(*_: object) -> None:
    pytest.fail("something was started")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = tmp_path / "config"
    path.mkdir()
    (path / "models.yaml").write_text(CHAT, encoding="utf-8")
    return str(path)


def concord(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["concord", *arguments])
    try:
        return main()
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize(
    ("command", "lowest"),
    [
        (["up"], 1),
        (["engine"], 0),
        (["serve", "--config", "x"], 0),
        (["coordinator", "--config", "x"], 0),
    ],
    ids=["up", "engine", "serve", "coordinator"],
)
@pytest.mark.parametrize("port", ["70000", "65536", "-1", "9" * 30, "x", "1.5"])
def test_number_that_is_no_port_is_a_usage_error_that_names_the_range(
    monkeypatch: pytest.MonkeyPatch, capsys, command: list[str], lowest: int, port: str
) -> None:
    assert concord(monkeypatch, *command, f"--port={port}") == 2
    assert f"{port} is not a port from {lowest} to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "highest"),
    [
        (["--port", "65500"], 65434),
        (["--port", "65400", "--replicas", "200"], 65335),
        (["--port", "65534", "--config"], 65445),
        (["--port", "65500", "--replicas", "96", "--config"], 65439),
    ],
    ids=["demo", "demo with many", "given", "given with many"],
)
def test_port_that_leaves_no_room_above_it_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys, folder: str, options: list[str], highest: int
) -> None:
    given = [*options, folder] if options[-1] == "--config" else options

    assert concord(monkeypatch, "up", *given) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert f"give at most {highest}" in line


@pytest.mark.parametrize("command", ["up", "serve", "coordinator"])
@pytest.mark.parametrize("how", ["option", "variable"])
@pytest.mark.parametrize(
    "url", ["redis://localhost?foo=bar", "http://localhost", "redis://[x", "redis://h?db=x"]
)
def test_redis_url_that_cannot_be_used_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys, folder: str, command: str, how: str, url: str
) -> None:
    monkeypatch.setattr("socket.socket.bind", nothing_starts)
    options = ["--redis", url] if how == "option" else []
    if how == "variable":
        monkeypatch.setenv("REDIS_URL", url)

    assert concord(monkeypatch, command, "--config", folder, *options) == 1

    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith(f"concord {command}: ")
    assert captured.out == ""


@pytest.mark.parametrize("command", ["serve", "coordinator"])
def test_process_of_a_cluster_needs_its_redis(
    monkeypatch: pytest.MonkeyPatch, capsys, folder: str, command: str
) -> None:
    assert concord(monkeypatch, command, "--config", folder) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{command} needs --redis URL or REDIS_URL" in line


def test_embedded_store_has_no_coordinator(
    monkeypatch: pytest.MonkeyPatch, capsys, folder: str
) -> None:
    assert concord(monkeypatch, "coordinator", "--config", folder, "--redis", "embedded://") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "the embedded store lives inside one replica" in line


def test_coordinator_of_a_folder_that_is_not_there_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    options = ["--config", "/nowhere", "--redis", "redis://h"]
    assert concord(monkeypatch, "coordinator", *options) == 2
    assert "--config /nowhere is not a folder" in capsys.readouterr().err


def test_coordinator_is_started_in_place_and_its_redis_told_to_its_environment_alone(
    monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []

    def become(_: str, argv: list[str], env: dict[str, str]) -> None:
        started.append((argv, env))
        raise SystemExit(0)

    monkeypatch.setattr("os.execve", become)

    concord(monkeypatch, "coordinator", "--config", folder, "--redis", "redis://:hush@h")

    ((argv, env),) = started
    assert argv[argv.index("-m") + 1] == "coordinator"
    assert argv[-6:] == ["--config", folder, "--host", "127.0.0.1", "--port", "4090"]
    assert env["REDIS_URL"] == "redis://:hush@h"
    assert not any("hush" in word for word in argv)


def test_place_that_cannot_tell_of_the_cluster_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/dev/null")

    assert concord(monkeypatch, "up") == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("concord up: cannot write /dev/null/")
    assert "Not a directory" in line


@pytest.mark.parametrize(
    "models",
    [
        f"{CHAT[:-2]}, api_key: '${{CONCORD_TEST_UNSET}}'}}]",
        f"{CHAT[:-2]}, api_key: '${{CONCORD_TEST_UNSET}}'}}, {{id: e, name: E, provider: vllm, "
        "model_type: embedding, base_url: 'http://localhost:2'}]",
        f"{CHAT[:-2]}, model_type: embedding}}] # CONCORD_TEST_UNSET",
    ],
    ids=["nothing is left", "only embeddings are left", "only embeddings are given"],
)
def test_configuration_without_a_chat_model_to_serve_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys, folder: str, models: str
) -> None:
    (Path(folder) / "models.yaml").write_text(models, encoding="utf-8")

    assert concord(monkeypatch, "up", "--port", "26411", "--config", folder) == 1

    captured = capsys.readouterr()
    assert f"{folder} has no chat model that can be served" in captured.err
    unset = "${CONCORD_TEST_UNSET}" in models
    assert ("the variable CONCORD_TEST_UNSET is not set" in captured.err) == unset
    assert captured.out == ""


@pytest.mark.parametrize(
    ("command", "texts"),
    [
        ("serve", ["folder with models.yaml", "default 127.0.0.1", "default 4000"]),
        ("up", ["default 127.0.0.1", "default 4000"]),
        ("coordinator", ["default 127.0.0.1", "default 4090"]),
        ("engine", ["default 127.0.0.1", "default 8000"]),
    ],
)
def test_help_tells_the_defaults(
    monkeypatch: pytest.MonkeyPatch, capsys, command: str, texts: list[str]
) -> None:
    assert concord(monkeypatch, command, "--help") == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert [text for text in texts if text not in shown] == []
