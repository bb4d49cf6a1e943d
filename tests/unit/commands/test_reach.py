"""Which cluster a command asks, what it says where there is none, and how answers are shown."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.__main__ import main
from gateway.commands.running import Running, publish, running_file

CHAT = 'models: [{id: m, name: M, provider: vllm, base_url: "http://localhost:1"}]'
NOWHERE = "unix:///nowhere/redis.sock"
COMMANDS = {
    "explain": ["explain", "m"],
    "status": ["status"],
    "circuit": ["circuit", "reset", "m", "local-1"],
    "redis": ["redis", "doctor"],
}


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_URL", "CONCORD_SECRET", "CONCORD_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    # A password would have the command start anew, in this very process.
    monkeypatch.setattr("gateway.commands.reach.conceal_password", lambda *_: None)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = tmp_path / "config"
    path.mkdir()
    (path / "models.yaml").write_text(CHAT, encoding="utf-8")
    return str(path)


@pytest.fixture(params=COMMANDS.values(), ids=COMMANDS)
def command(request: pytest.FixtureRequest) -> list[str]:
    given: list[str] = request.param
    return given


def concord(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["concord", *arguments])
    try:
        return main()
    except SystemExit as ended:
        return int(ended.code or 0)


class Replica:
    """Answers everything alike, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.answer = (200, b"{}")


class Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, replica: Replica, *connection: Any) -> None:
        self._replica = replica
        super().__init__(*connection)

    def do_GET(self) -> None:
        self._replica.asked.append((self.command, self.path, self.headers["authorization"]))
        status, body = self._replica.answer
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """A replica that up.json tells of, behind one that has died."""
    replica = Replica()
    handle = partial(Handler, replica)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handle) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        tell_of("http://127.0.0.1:1", f"http://127.0.0.1:{server.server_port}", folder=tmp_path)
        yield replica
        server.shutdown()
        thread.join()


def tell_of(*replicas: str, folder: Path) -> None:
    publish(
        running_file({"XDG_RUNTIME_DIR": str(folder)}),
        Running(
            base_url="http://127.0.0.1:1/v1",
            replicas=replicas,
            redis=NOWHERE,
            admin_key="sk-admin",
            config="/nowhere",
        ),
    )


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ([], 1, "no `concord up` is running here: give --config DIR and --redis URL"),
        (["--redis", NOWHERE], 1, "--redis needs --config DIR"),
        (["--config", "DIR"], 1, "--config needs --redis URL, or REDIS_URL"),
        (["--config", "/nowhere", "--redis", NOWHERE], 2, "--config /nowhere is not a folder"),
        (["--config", "DIR", "--redis", "embedded://"], 1, "cannot be reached from outside"),
        (["--config", "DIR", "--redis", "http://h"], 1, "the Redis URL cannot be used"),
        (["--config", "DIR", "--redis", NOWHERE], 1, "Redis cannot be asked: Error 2 connecting"),
    ],
)
def test_cluster_that_cannot_be_asked_is_one_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: str,
    command: list[str],
    options: list[str],
    code: int,
    told: str,
) -> None:
    given = [folder if word == "DIR" else word for word in options]
    assert concord(monkeypatch, *command, *given) == code
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith(f"concord {command[0]}: ")
    assert told in line
    assert captured.out == ""


def test_redis_url_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    monkeypatch.setenv("REDIS_URL", NOWHERE)
    assert concord(monkeypatch, "status", "--config", folder) == 1
    assert "Redis cannot be asked" in capsys.readouterr().err


def test_configuration_with_an_error_is_told_with_its_problems(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    (Path(folder) / "models.yaml").write_text("models: 5", encoding="utf-8")
    assert concord(monkeypatch, "status", "--config", folder, "--redis", NOWHERE) == 1
    captured = capsys.readouterr()
    assert "error models.yaml: models: must be a list" in captured.err
    assert "concord status: the configuration cannot be served" in captured.err


@pytest.mark.parametrize(
    "words",
    [["explain"], ["circuit"], ["circuit", "open"], ["circuit", "reset", "m"], ["redis"]],
    ids=str,
)
def test_missing_words_are_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert concord(monkeypatch, *words) == 2
    assert "usage: concord" in capsys.readouterr().err


def test_a_session_without_its_caller_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert concord(monkeypatch, "explain", "m", "--session", "talk") == 2
    assert "--session needs --caller" in capsys.readouterr().err


def test_running_up_is_asked_with_its_key_through_the_replica_that_answers(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replica: Replica,
) -> None:
    # Given a running `up`, and a REDIS_URL that is for something else
    monkeypatch.setenv("REDIS_URL", NOWHERE)
    replica.answer = (200, json.dumps({"endpoint": "m/l:a", "was": "open"}).encode())
    # When a circuit is reset
    assert concord(monkeypatch, "circuit", "reset", "m/l", "m/l:a ß") == 0
    # Then the replica that answers was asked
    path = "/admin/routing/circuits/m%2Fl/m%2Fl%3Aa%20%C3%9F"
    assert replica.asked == [("DELETE", path, "Bearer sk-admin")]
    assert capsys.readouterr().out == "m/l:a: closed, was open\n"


def test_no_word_leads_to_another_place_of_the_surface(
    monkeypatch: pytest.MonkeyPatch, replica: Replica
) -> None:
    replica.answer = (404, b'{"error": {"message": "There is no endpoint."}}')
    assert concord(monkeypatch, "circuit", "reset", "m", "../../weights/m/a") == 1
    [(_, path, _)] = replica.asked
    assert path == "/admin/routing/circuits/m/..%2F..%2Fweights%2Fm%2Fa"


def test_question_is_passed_on_word_by_word(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replica: Replica,
) -> None:
    replica.answer = (404, b'{"error": {"message": "There is no model."}}')
    options = ["--caller", "ip:::1", "--session", "a b", "--request-id", "id"]
    assert concord(monkeypatch, "explain", "m", *options) == 1
    [(_, path, _)] = replica.asked
    assert path == ("/admin/routing/explain?model=m&caller=ip%3A%3A%3A1&session=a+b&request_id=id")
    assert capsys.readouterr().err == "concord explain: There is no model.\n"


@pytest.mark.parametrize(
    "answer",
    [(200, b"<html>"), (200, b"[]"), (502, b"<html>"), (500, b'{"error": "x"}'), (403, b"")],
    ids=str,
)
def test_answer_that_is_not_understood_is_one_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replica: Replica,
    answer: tuple[int, bytes],
) -> None:
    replica.answer = answer
    assert concord(monkeypatch, "status") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "is not understood" in line


def test_up_that_has_ended_without_a_word_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tell_of("http://127.0.0.1:1", folder=tmp_path)
    assert concord(monkeypatch, "status") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "`concord up` does not answer at http://127.0.0.1:1" in line


def status(**changes: Any) -> bytes:
    replica = {
        "id": "r1",
        "host": "h",
        "seen_ms": 1,
        "silent_ms": 1500,
        "config_digest": "abc",
        "secret_mark": "0f0f",
        "version": "0.1.0",
    }
    usual: dict[str, Any] = {
        "config_digest": "abc",
        "endpoints": {},
        "claims": {"m": 2, "n": 0},
        "retry_budgets": {},
        "gates": [],
        "replicas": [replica, {**replica, "id": "r2"}],
        "coordinator": None,
        "redis": {
            "version": "7.0.15",
            "policy": "noeviction",
            "persistence": "aof",
            "is_throwaway": False,
            "memory_bytes": 3 * 1024 * 1024,
            "max_memory_bytes": None,
            "failed": [],
            "ahead_ms": 3,
            "slow_scripts": [],
        },
        "warnings": [],
    }
    return json.dumps({**usual, **changes}).encode()


def test_status_is_a_table_that_says_whether_configurations_agree(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replica: Replica,
) -> None:
    endpoint = {
        "model": "m",
        "location": "a",
        "provider": "p",
        "weight": 0.5,
        "reasons": ["weight_override"],
        "circuit": "open",
        "availability": 0.729,
        "failures": 3,
        "last_status": 503,
        "auth_rejections": 0,
        "inflight": 2,
        "prefill_tokens": 52000,
        "elephants": 0,
        "unreachable_from": {"r9": 1},
        "cooldown": None,
        "limits": [],
    }
    replica.answer = (200, status(endpoints={"m:a": endpoint}))
    assert concord(monkeypatch, "status") == 0
    assert capsys.readouterr().out.splitlines() == [
        "ENDPOINT  CIRCUIT  AVAILABLE  INFLIGHT  PREFILL  WEIGHT  NOTES",
        "m:a       open     72.9%      2         52000    0.5     weight_override, last error 503,",
        f"{'unreachable from r9':>76}",
        "",
        "REPLICA  HOST  VERSION  CONFIG  SEEN",
        "r1       h     0.1.0    abc     1.5 s ago",
        "r2       h     0.1.0    abc     1.5 s ago",
        "configurations agree",
        "",
        "claims       m 2",
        "coordinator  none",
        "redis        7.0.15, noeviction, aof, 3.0 MiB",
    ]


def test_status_shows_what_differs_and_every_warning(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replica: Replica,
) -> None:
    found = json.loads(status(warnings=["one", "two"]))
    found["replicas"][1]["config_digest"] = "def"
    found["redis"] = {**dict.fromkeys(found["redis"]), "is_throwaway": False, "failed": []}
    replica.answer = (200, json.dumps(found).encode())
    assert concord(monkeypatch, "status") == 0
    shown = capsys.readouterr().out
    assert "configurations differ" in shown
    assert "redis        does not tell of itself\nwarning: one\nwarning: two\n" in shown


def test_status_tells_who_coordinates_and_how_old_its_words_are(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replica: Replica,
) -> None:
    coordinator = {
        "holder": "c1",
        "epoch": 17,
        "expires_ms": 5,
        "left_ms": 8200,
        "host": "h",
        "version": "0.1.0",
        "config_digest": "abc",
        "published": {"probes": 2500, "redis": 3_000_000},
    }
    for left_ms, lease in ((8200, "lease 8.2 s"), (0, "lease has run out")):
        replica.answer = (200, status(coordinator={**coordinator, "left_ms": left_ms}))
        assert concord(monkeypatch, "status") == 0
        told = f"c1 on h, epoch 17, {lease}, probes 2.5 s ago, redis 50 min ago"
        assert f"coordinator  {told}\n" in capsys.readouterr().out


def test_json_is_what_the_replica_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replica: Replica,
) -> None:
    replica.answer = (200, status())
    assert concord(monkeypatch, "status", "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(status())


def explanation(**changes: Any) -> bytes:
    candidate = {
        "endpoint": "m:a",
        "weight": 2.0,
        "factors": {},
        "score": None,
        "share": 1.0,
        "cost_usd": None,
        "latency_source": None,
        "reason": None,
        "cooldown": None,
        "limits": [],
        "holds": {"inflight": 3, "availability": 0.9},
    }
    out = {**candidate, "endpoint": "m:bb", "share": 0.0, "reason": "circuit_open", "holds": {}}
    usual: dict[str, Any] = {
        "model": "m",
        "epoch": 7,
        "request_id": "id",
        "attempt": 1,
        "replica": "r1",
        "drawn": "m:a",
        "refused": None,
        "order": "draw",
        "draws": [0.25, 0.5],
        "pin": "made",
        "probe": True,
        "prompt_tokens": 0,
        "output_tokens": 0,
        "prefill_tokens": 0,
        "retry_after_ms": 0,
        "retry_budget": None,
        "profile_age_ms": None,
        "candidates": [candidate, out],
    }
    return json.dumps({**usual, **changes}).encode()


def test_explanation_is_a_table_of_candidates(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replica: Replica,
) -> None:
    replica.answer = (200, explanation())
    assert concord(monkeypatch, "explain", "m") == 0
    assert capsys.readouterr().out.splitlines() == [
        "model m, epoch 7, request id",
        "goes to m:a",
        "drawn by 0.250000, 0.500000",
        "the caller has no pin to follow; this request would make one",
        "as the trial of a half-open circuit",
        "",
        "ENDPOINT  WEIGHT  SHARE   REASON        HOLDS",
        "m:a       2       100.0%                availability=0.9 inflight=3",
        "m:bb      2       0.0%    circuit_open",
    ]


def test_refusal_is_an_explanation_too(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replica: Replica,
) -> None:
    refused = {"drawn": None, "refused": "No endpoint.", "draws": [], "pin": "", "probe": False}
    replica.answer = (200, explanation(**refused, retry_after_ms=1250))
    assert concord(monkeypatch, "explain", "m") == 0
    shown = capsys.readouterr().out
    assert "is refused: No endpoint.\nmay be taken in 1.2 s\n" in shown
    assert "drawn by" not in shown
