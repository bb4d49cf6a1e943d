"""Log lines are JSON with flat fields."""

from __future__ import annotations

import json
import logging

import pytest

from gateway.telemetry.logs import JsonFormatter, Once, bug, event


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def formatted(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(JsonFormatter().format(record)) for record in caplog.records]


def test_a_line_holds_time_level_name_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    event("circuit_opened", level=logging.WARNING, endpoint="m:a", count=3, what='"\n é')
    [line] = formatted(caplog)
    assert str(line.pop("ts")).endswith("+00:00")
    assert line == {
        "level": "warning",
        "msg": "circuit_opened",
        "endpoint": "m:a",
        "count": 3,
        "what": '"\n é',
    }
    assert "\n" not in JsonFormatter().format(caplog.records[0])


@pytest.mark.parametrize(
    ("since_epoch_s", "told"),
    [
        (0.0, "1970-01-01T00:00:00.000+00:00"),
        (1_764_547_199.0625, "2025-11-30T23:59:59.062+00:00"),
        (1_764_547_200.5, "2025-12-01T00:00:00.500+00:00"),
    ],
)
def test_a_line_s_time_is_utc_to_the_millisecond(since_epoch_s: float, told: str) -> None:
    record = logging.makeLogRecord({"msg": "x", "created": since_epoch_s})
    assert json.loads(JsonFormatter().format(record))["ts"] == told


def test_lines_of_other_libraries_are_json_too(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("another.logger").warning("started %s", "server")
    assert formatted(caplog)[0]["msg"] == "started server"


def test_a_bug_carries_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        bug(request_id="r-1")
    [line] = formatted(caplog)
    assert (line["msg"], line["level"], line["request_id"]) == ("unexpected_error", "error", "r-1")
    assert "RuntimeError: boom" in str(line["error"])


def test_a_key_comes_for_the_first_time_once() -> None:
    once = Once()
    assert [once.first(key) for key in ("a", "b", "a", "b")] == [True, True, False, False]


def test_memory_of_keys_is_bounded() -> None:
    once = Once(limit=2)
    assert [once.first(key) for key in ("a", "b", "c")] == [True] * 3
    assert once.first("a"), "it started over at the third"
